// Entry point of the studio's page: connect to a server, or to the data of a report, then render.
import { render } from "preact";

import { listenForKeys } from "./key_bindings";
import { Page } from "./shell/page";
import { ReportTransport } from "./report/report_transport";
import { followSelection } from "./selected_names";
import { Socket, socketAddress } from "./socket";
import { Store } from "./store";
import { followSystem } from "./theme";

const embedded = document.getElementById("report")?.textContent; // of a report, which needs no server
const store = new Store((listener) =>
  embedded ? new ReportTransport(embedded, listener) : new Socket(socketAddress(location.href), listener),
);

followSystem();
listenForKeys(store);
followSelection(store);
const app = document.getElementById("app")!;
app.replaceChildren(); // "Loading…" would stay below the page
render(<Page store={store} />, app);
store.start();

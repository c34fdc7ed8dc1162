// Entry point of the studio's page: connect to a server, or to the data of a report, then render.
import { render } from "preact";

import { listenForKeys } from "./key_bindings";
import { Page } from "./shell/page";
import { ReportTransport } from "./report/report_transport";
import { Socket } from "./socket";
import { Store } from "./store";
import { followSystem } from "./theme";

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const embedded = document.getElementById("report")?.textContent; // of a report, which needs no server
const store = new Store((listener) =>
  embedded ? new ReportTransport(embedded, listener) : new Socket(`${scheme}//${location.host}/ws`, listener),
);

followSystem();
listenForKeys(store);
render(<Page store={store} />, document.getElementById("app")!);
store.start();

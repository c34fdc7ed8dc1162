// Entry point of the studio's page: connect, then render.
import { render } from "preact";

import { listenForKeys } from "./key_bindings";
import { Page } from "./shell/page";
import { followSelection } from "./selected_names";
import { socketAddress } from "./socket";
import { Store } from "./store";
import { followSystem } from "./theme";

const store = new Store(socketAddress(location.href));

followSystem();
listenForKeys(store);
followSelection(store);
const app = document.getElementById("app")!;
app.replaceChildren(); // "Loading…" would stay below the page
render(<Page store={store} />, app);
store.start();

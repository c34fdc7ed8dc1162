// Entry point of the studio's page: connect, then render.
import { render } from "preact";

import { listenForKeys } from "./key_bindings";
import { Page } from "./shell/page";
import { followSelection } from "./selected_names";
import { Store } from "./store";
import { followSystem } from "./theme";

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const store = new Store(`${scheme}//${location.host}/ws`);

followSystem();
listenForKeys(store);
followSelection(store);
render(<Page store={store} />, document.getElementById("app")!);
store.start();

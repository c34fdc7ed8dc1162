// The studio's page: connect, then draw whatever is known.
import { render } from "preact";

import { listen } from "./key_bindings";
import { App } from "./shell/page";
import { Store } from "./store";
import { followSystem } from "./theme";

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const store = new Store(`${scheme}//${location.host}/ws`);

followSystem();
listen(store);
render(<App store={store} />, document.getElementById("app")!);
store.start();

// The first line of the page: what is shown, the tabs, and how the connection is.
import { theme, toggle } from "../theme";
import { useValue, type Store } from "../store";
import { Alerts } from "./alerts";
import { Icon } from "./icons";
import { Recordings, RunChooser } from "./sources";
import { Tabs } from "./tabs";

const SOURCES: Record<string, string> = { live: "Live", recording: "Recording", run: "Run", nothing: "Waiting" };

/** The top bar. */
export function Top({ store, help }: { store: Store; help: () => void }) {
  const now = useValue(theme);
  return (
    <header class="top">
      <Title store={store} />
      <RunChooser store={store} />
      <Tabs store={store} />
      <div class="row end">
        <Recordings store={store} />
        <Alerts store={store} />
        <button class="quiet" aria-label={now === "dark" ? "Light colours" : "Dark colours"} title="Light or dark (D)" onClick={toggle}>
          <Icon name={now === "dark" ? "sun" : "moon"} />
        </button>
        <button class="quiet" aria-label="Keys" title="Keys (?)" onClick={help}>
          <span class="glyph">?</span>
        </button>
        <Connected store={store} />
      </div>
    </header>
  );
}

function Title({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  return (
    <div class="title">
      <h1 title={hello?.title}>{hello?.title || "torcheer studio"}</h1>
      {hello && <span class={`chip ${hello.source}`}>{SOURCES[hello.source] ?? hello.source}</span>}
    </div>
  );
}

function Connected({ store }: { store: Store }) {
  const connection = useValue(store.connection);
  const viewers = useValue(store.viewers);
  const words = { connecting: "Connecting…", open: "Connected", lost: "Not connected" }[connection];
  const others = viewers > 1 ? `${viewers} pages look at this` : "only this page looks";
  return (
    <span class={`connection ${connection}`} role="status" title={connection === "open" ? `${words}: ${others}` : words}>
      <span class="dot" aria-hidden="true" />
      <span class="word">{words}</span>
      {connection === "open" && viewers > 1 && <span>{viewers} viewers</span>}
    </span>
  );
}

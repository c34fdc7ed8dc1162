// The first line of the page: what is shown, the tabs, and how the connection is.
import { choice, next, theme, turn, type Choice } from "../theme";
import { useValue, type Store } from "../store";
import { useTableAlone } from "../tables/table_chooser";
import { Alerts } from "./alerts";
import { Icon, type IconName } from "./icons";
import { useWord } from "./liveness";
import { Recordings, RunChooser } from "./sources";
import { Tabs } from "./tabs";

const COLOURS: Record<Choice, { name: string; icon: IconName }> = {
  light: { name: "Light colours", icon: "sun" },
  dark: { name: "Dark colours", icon: "moon" },
  auto: { name: "Colours as the system has them", icon: "half" },
};

/** The top bar. */
export function Top({ store, help }: { store: Store; help: () => void }) {
  useValue(theme); // the system may change, and with it what comes next
  const { name, icon } = COLOURS[next(useValue(choice))];
  return (
    <header class="top">
      <Title store={store} />
      <RunChooser store={store} />
      <Tabs store={store} />
      <div class="row end">
        <Recordings store={store} />
        <Alerts store={store} />
        <button class="quiet" aria-label={name} title={`${name} (D)`} onClick={turn}>
          <Icon name={icon} />
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
  const alone = useTableAlone(store);
  const word = useWord(store);
  const look = alone ? "table" : hello?.source === "live" && word !== "Live" ? "over" : hello?.source;
  return (
    <div class="title">
      <h1 title={hello?.title}>{hello?.title || "torcheer studio"}</h1>
      {hello && <span class={`chip ${look}`}>{alone ? "Table" : word}</span>}
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

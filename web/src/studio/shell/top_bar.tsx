// The top bar: title, tabs, theme, help and connection.
import { themeChoice, nextChoice, theme, cycleTheme, type ThemeChoice } from "../theme";
import { useValue, type Store } from "../store";
import { useTableOnly } from "../tables/table_chooser";
import { Alerts } from "./alerts";
import { Icon, type IconName } from "./icons";
import { useLivenessLabel } from "./liveness";
import { Recordings, RunChooser } from "./sources";
import { Tabs } from "./tabs";

const THEME_BUTTONS: Record<ThemeChoice, { name: string; icon: IconName }> = {
  light: { name: "Light colours", icon: "sun" },
  dark: { name: "Dark colours", icon: "moon" },
  auto: { name: "Colours as the system has them", icon: "half" },
};

/** The top bar. */
export function TopBar({ store, help }: { store: Store; help: () => void }) {
  useValue(theme); // the system's theme may change, and with it the next choice
  const { name, icon } = THEME_BUTTONS[nextChoice(useValue(themeChoice))];
  return (
    <header class="top">
      <Title store={store} />
      <RunChooser store={store} />
      <Tabs store={store} />
      <div class="row end">
        <Recordings store={store} />
        <Alerts store={store} />
        <button class="quiet" aria-label={name} title={`${name} (D)`} onClick={cycleTheme}>
          <Icon name={icon} />
        </button>
        <button class="quiet" aria-label="Keys" title="Keys (?)" onClick={help}>
          <span class="glyph">?</span>
        </button>
        <ConnectionStatus store={store} />
      </div>
    </header>
  );
}

function Title({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  const tableOnly = useTableOnly(store);
  const label = useLivenessLabel(store);
  const chipClass =
    label === "Report"
      ? "report-chip"
      : tableOnly
        ? "table"
        : hello?.source === "live" && label !== "Live"
          ? "over"
          : hello?.source === "comparison"
            ? "compared" // not the class of the dialog that compares rows
            : hello?.source;
  return (
    <div class="title">
      <h1 title={hello?.title}>{hello?.title || "torcheer studio"}</h1>
      {hello && <span class={`chip ${chipClass}`}>{tableOnly && label !== "Report" ? "Table" : label}</span>}
    </div>
  );
}

function ConnectionStatus({ store }: { store: Store }) {
  const connection = useValue(store.connection);
  const viewers = useValue(store.viewers);
  const report = useValue(store.report);
  if (report) return <span class="connection open" role="status" aria-label="A report, read from its own file" />;
  const label = { connecting: "Connecting…", open: "Connected", lost: "Not connected" }[connection];
  const viewersText = viewers > 1 ? `${viewers} pages look at this` : "only this page looks";
  return (
    <span
      class={`connection ${connection}`}
      role="status"
      title={connection === "open" ? `${label}: ${viewersText}` : label}
    >
      <span class="dot" aria-hidden="true" />
      <span class="word">{label}</span>
      {connection === "open" && viewers > 1 && <span>{viewers} viewers</span>}
    </span>
  );
}

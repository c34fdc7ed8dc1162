// The tab list, as ARIA specifies: one tab is in the tab order, arrows move to the others.
import { useValue, type Store, type TabName } from "../store";

export const TABS: { name: TabName; title: string }[] = [
  { name: "network", title: "Network" },
  { name: "plots", title: "Plots" },
  { name: "tables", title: "Tables" },
];
const RUNS = { name: "runs" as TabName, title: "Runs" };
const SAMPLES = { name: "samples" as TabName, title: "Samples" };
const GRAPH = { name: "graph" as TabName, title: "Graph" };
const BACKWARD = { name: "backward" as TabName, title: "Backward" };
const COMPARE = { name: "compare" as TabName, title: "Compare" };
const SUMMARY = { name: "summary" as TabName, title: "Summary" };
const KEY_MOVES: Record<string, (index: number) => number> = {
  ArrowLeft: (index) => index - 1,
  ArrowRight: (index) => index + 1,
  Home: () => 0,
  End: () => -1,
};

/** The tab list. */
export function Tabs({ store }: { store: Store }) {
  const current = useValue(store.tab);
  const hasSamples = useValue(store.samples).length > 0 || current === "samples";
  const report = useValue(store.report);
  const hasNet = useValue(store.net) !== null || current === "graph";
  const hasGraph = hasNet && report?.graph !== false;
  const hasRuns = useValue(store.runList).total > 0;
  const first = report ? [SUMMARY] : hasRuns ? [RUNS] : [];
  const backward = useValue(store.backward) ? [BACKWARD] : [];
  const compared = useValue(store.comparison) || current === "compare" ? [COMPARE] : [];
  const tabs = [
    ...first,
    ...backward,
    ...compared,
    ...TABS,
    ...(hasSamples ? [SAMPLES] : []),
    ...(hasGraph ? [GRAPH] : []),
  ];
  const move = (event: KeyboardEvent): void => {
    const target = KEY_MOVES[event.key]?.(tabs.findIndex(({ name }) => name === current));
    if (target === undefined) return;
    event.preventDefault();
    const { name } = tabs[(target + tabs.length) % tabs.length];
    store.tab.set(name);
    document.getElementById(`tab-${name}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" onKeyDown={move}>
      {tabs.map(({ name, title }) => (
        <button
          key={name}
          id={`tab-${name}`}
          class="tab"
          role="tab"
          aria-selected={name === current}
          aria-controls={`panel-${name}`}
          tabIndex={name === current ? 0 : -1}
          onClick={() => store.tab.set(name)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

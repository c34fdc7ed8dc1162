// The tabs: one is in the tab order, arrows go to the others, as ARIA has it.
import { useValue, type Store, type TabName } from "../store";

export const TABS: { name: TabName; title: string }[] = [
  { name: "network", title: "Network" },
  { name: "plots", title: "Plots" },
  { name: "tables", title: "Tables" },
];
const GRAPH = { name: "graph" as TabName, title: "Graph" };
const MOVES: Record<string, (at: number) => number> = {
  ArrowLeft: (at) => at - 1,
  ArrowRight: (at) => at + 1,
  Home: () => 0,
  End: () => -1,
};

/** The list of tabs. */
export function Tabs({ store }: { store: Store }) {
  const now = useValue(store.tab);
  const tabs = useValue(store.hello)?.source === "pass" ? [...TABS, GRAPH] : TABS;
  const move = (event: KeyboardEvent): void => {
    const to = MOVES[event.key]?.(tabs.findIndex(({ name }) => name === now));
    if (to === undefined) return;
    event.preventDefault();
    const { name } = tabs[(to + tabs.length) % tabs.length];
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
          aria-selected={name === now}
          aria-controls={`panel-${name}`}
          tabIndex={name === now ? 0 : -1}
          onClick={() => store.tab.set(name)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

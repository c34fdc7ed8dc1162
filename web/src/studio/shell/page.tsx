// The page: bars above and below, parameters on the left, a tab in the middle, the selection on the right.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { BackwardTab } from "../backward/tab";
import { CompareTab } from "../compare/tab";
import { ControlBar, trainOrStop } from "../control/control_bar";
import { ParameterForm } from "../control/parameter_form";
import { GraphTab } from "../graph/tab";
import { addKeyBindings } from "../key_bindings";
import { Inspector, NetworkTab } from "../network/tab";
import { plotKeyBindings } from "../plots/plot_keys";
import { PlotsTab } from "../plots/tab";
import { SummaryTab } from "../report/tab";
import { RunsTab } from "../runs/tab";
import { SamplesTab } from "../samples/tab";
import { useValue, type Store, type TabName } from "../store";
import { TablesTab } from "../tables/tab";
import { loadItem, saveItem } from "../local_storage";
import { cycleTheme } from "../theme";
import { Banner } from "./banner";
import { ErrorBoundary } from "./error_boundary";
import { Help } from "./help";
import { Icon } from "./icons";
import { Notices } from "./notices";
import { RankRow } from "./rank_row";
import { StatusBar } from "./status_bar";
import { TABS } from "./tabs";
import { TopBar } from "./top_bar";

const SIDE_KEY = "torcheer.parameters";
const WIDE_PX = 1100; // minimum window width for an initially open parameter form

/** The whole page. */
export function Page({ store }: { store: Store }) {
  const [openHelp, setHelp] = useState(false);
  const [side, setSide] = useState(
    () => (loadItem(SIDE_KEY) ?? (window.innerWidth >= WIDE_PX ? "open" : "shut")) === "open",
  );
  const toggleSide = (): void =>
    setSide((open) => {
      saveItem(SIDE_KEY, open ? "shut" : "open");
      return !open;
    });
  usePageKeys(store, toggleSide, () => setHelp(true));
  const title = useValue(store.hello)?.title;
  useEffect(() => {
    document.title = title ? `${title} · torcheer studio` : "torcheer studio";
  }, [title]);
  return (
    <div class={`page${side ? "" : " narrow"}`}>
      <TopBar store={store} help={() => setHelp(true)} />
      <div class="second">
        <button
          class="quiet"
          aria-label="Parameters"
          aria-expanded={side}
          aria-controls="parameters"
          title="Parameters (P)"
          onClick={toggleSide}
        >
          <Icon name="panel" />
        </button>
        <ControlBar store={store} />
      </div>
      <Banner store={store} />
      <div class="middle">
        {side && <ParameterForm store={store} />}
        <main>
          <Panels store={store} />
        </main>
        <ErrorBoundary part="The selection">
          <Inspector store={store} />
        </ErrorBoundary>
      </div>
      <RankRow store={store} />
      <div class="bottom">
        <StatusBar store={store} />
        <Notices store={store} />
      </div>
      {openHelp && <Help close={() => setHelp(false)} />}
    </div>
  );
}

// The network stays mounted when another tab is open: its camera and meshes are costly to rebuild.
function Panels({ store }: { store: Store }) {
  const current = useValue(store.tab);
  const panel = (name: TabName) => ({
    id: `panel-${name}`,
    class: "panel",
    role: "tabpanel" as const,
    "aria-labelledby": `tab-${name}`,
    hidden: current !== name,
  });
  return (
    <>
      <div {...panel("runs")}>
        <ErrorBoundary part="The list of runs">{current === "runs" && <RunsTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("compare")}>
        <ErrorBoundary part="The comparison">{current === "compare" && <CompareTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("network")}>
        <ErrorBoundary part="The network's view">
          <NetworkTab store={store} />
        </ErrorBoundary>
      </div>
      <div {...panel("plots")}>
        <ErrorBoundary part="The plot">{current === "plots" && <PlotsTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("tables")}>
        <ErrorBoundary part="The table">{current === "tables" && <TablesTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("samples")}>
        <ErrorBoundary part="The samples">{current === "samples" && <SamplesTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("summary")}>
        <ErrorBoundary part="The summary">{current === "summary" && <SummaryTab store={store} />}</ErrorBoundary>
      </div>
      <div {...panel("backward")}>
        <ErrorBoundary part="The backward pass">
          <BackwardTab store={store} />
        </ErrorBoundary>
      </div>
      <div {...panel("graph")}>
        <ErrorBoundary part="The graph">
          <GraphTab store={store} />
        </ErrorBoundary>
      </div>
    </>
  );
}

function showRuns(store: Store): void {
  if (store.runList.get().total) store.tab.set("runs");
}

function usePageKeys(store: Store, toggleSide: () => void, openHelp: () => void): void {
  useLayoutEffect(
    () =>
      addKeyBindings([
        { key: " ", label: "Space", description: "Train, or stop", run: () => trainOrStop(store) },
        ...TABS.map(({ name, title }, index) => ({
          key: String(index + 1),
          description: `${title} tab`,
          run: () => store.tab.set(name),
        })),
        { key: "5", description: "Samples tab", run: () => store.tab.set("samples") },
        { key: "h", label: "H", description: "Home: the runs of a folder", run: () => showRuns(store) },
        { key: "p", label: "P", description: "Parameters: show or hide", run: toggleSide },
        { key: "d", label: "D", description: "Dark, light, or as the system has it", run: cycleTheme },
        { key: "?", description: "This list", run: openHelp },
        ...plotKeyBindings(),
      ]),
    [],
  );
}

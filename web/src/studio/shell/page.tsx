// The page: bars above and below, parameters at the left, a tab in the middle, the selection at the right.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { ControlBar, trainOrStop } from "../control/control_bar";
import { Parameters } from "../control/parameter_form";
import { GraphTab } from "../graph/tab";
import { addKeys } from "../key_bindings";
import { Inspector, NetworkTab } from "../network/tab";
import { keysOfPlots } from "../plots/plot_keys";
import { PlotsTab } from "../plots/tab";
import { useValue, type Store, type TabName } from "../store";
import { TablesTab } from "../tables/tab";
import { recall, remember, turn as turnTheme } from "../theme";
import { Banner } from "./banner";
import { Boundary } from "./error_boundary";
import { Help } from "./help";
import { Icon } from "./icons";
import { Notices } from "./notices";
import { Status } from "./status_bar";
import { TABS } from "./tabs";
import { Top } from "./top_bar";

const SIDE = "torcheer.parameters";
const ROOMY = 1100; // pixels from which on the parameters stand open at first

/** Everything. */
export function App({ store }: { store: Store }) {
  const [help, setHelp] = useState(false);
  const [side, setSide] = useState(() => (recall(SIDE) ?? (window.innerWidth >= ROOMY ? "open" : "shut")) === "open");
  const turn = (): void =>
    setSide((open) => {
      remember(SIDE, open ? "shut" : "open");
      return !open;
    });
  useKeys(store, turn, () => setHelp(true));
  const title = useValue(store.hello)?.title;
  useEffect(() => {
    document.title = title ? `${title} · torcheer studio` : "torcheer studio";
  }, [title]);
  return (
    <div class={`page${side ? "" : " narrow"}`}>
      <Top store={store} help={() => setHelp(true)} />
      <div class="second">
        <button class="quiet" aria-label="Parameters" aria-expanded={side} aria-controls="parameters" title="Parameters (P)" onClick={turn}>
          <Icon name="panel" />
        </button>
        <ControlBar store={store} />
      </div>
      <Banner store={store} />
      <div class="middle">
        {side && <Parameters store={store} />}
        <main>
          <Panels store={store} />
        </main>
        <Boundary what="The selection">
          <Inspector store={store} />
        </Boundary>
      </div>
      <Status store={store} />
      <Notices store={store} />
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

// The network stays where it is when another tab is open: its camera and its pictures are costly to make again.
function Panels({ store }: { store: Store }) {
  const now = useValue(store.tab);
  const panel = (name: TabName) => ({
    id: `panel-${name}`, class: "panel", role: "tabpanel" as const, "aria-labelledby": `tab-${name}`, hidden: now !== name,
  });
  return (
    <>
      <div {...panel("network")}>
        <Boundary what="The network's view">
          <NetworkTab store={store} />
        </Boundary>
      </div>
      <div {...panel("plots")}>
        <Boundary what="The plot">{now === "plots" && <PlotsTab store={store} />}</Boundary>
      </div>
      <div {...panel("tables")}>
        <Boundary what="The table">{now === "tables" && <TablesTab store={store} />}</Boundary>
      </div>
      <div {...panel("graph")}>
        <Boundary what="The graph">
          <GraphTab store={store} />
        </Boundary>
      </div>
    </>
  );
}

function useKeys(store: Store, turn: () => void, help: () => void): void {
  useLayoutEffect(
    () =>
      addKeys([
        { key: " ", shown: "Space", what: "Train, or stop", run: () => trainOrStop(store) },
        ...TABS.map(({ name, title }, index) => ({ key: String(index + 1), what: `${title} tab`, run: () => store.tab.set(name) })),
        { key: "p", shown: "P", what: "Parameters: show or hide", run: turn },
        { key: "d", shown: "D", what: "Dark, light, or as the system has it", run: turnTheme },
        { key: "?", what: "This list", run: help },
        ...keysOfPlots(),
      ]),
    [],
  );
}

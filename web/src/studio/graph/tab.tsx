// The Graph tab: the network's drawing, for recorded passes, live runs and stored runs alike.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { ZOOM_STEP } from "../../camera/camera_keys";
import { addKeyBindings, type KeyBinding } from "../key_bindings";
import { useValue, type Store } from "../store";
import { askDrawing } from "./graph_text";
import { GraphView } from "./graph_view";

/** The drawing, asked for when the tab is first opened; it keeps its state while other tabs are open. */
export function GraphTab({ store }: { store: Store }) {
  const net = useValue(store.net);
  const isOpen = useValue(store.tab) === "graph";
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<GraphView | null>(null);
  const [drawn, setDrawn] = useState(""); // the network that is drawn, as text
  const [problem, setProblem] = useState("");
  const name = useMemo(() => (net ? JSON.stringify(net) : ""), [net]); // the same network may come again
  const isWanted = isOpen && name !== "" && name !== drawn;
  useEffect(() => {
    if (!isWanted) return;
    let isStale = false;
    const show = async (): Promise<void> => {
      const graph = await askDrawing(store);
      if (isStale) return;
      view.current?.dispose();
      view.current = new GraphView(store, host.current!, graph);
      setDrawn(name);
      setProblem("");
    };
    show().catch((error: Error) => isStale || setProblem(error.message));
    return () => {
      isStale = true;
    };
  }, [isWanted, name]);
  useLayoutEffect(() => addKeyBindings(graphKeyBindings(store, view)), []);
  useEffect(() => () => view.current?.dispose(), []);
  return (
    <div class="graph">
      {isOpen && <GraphStatus isEmpty={!net} isWanted={isWanted} problem={problem} />}
      <div class="graph-host" ref={host} hidden={!net || (isWanted && problem !== "")} />
    </div>
  );
}

function GraphStatus({ isEmpty, isWanted, problem }: { isEmpty: boolean; isWanted: boolean; problem: string }) {
  if (isEmpty) return <p class="empty">No network yet: its graph appears here when a model has run.</p>;
  if (!isWanted) return null;
  return (
    <p class={problem ? "empty" : "empty waiting"} role="status">
      {problem ? `The graph could not be drawn: ${problem}` : "Drawing the graph…"}
    </p>
  );
}

// Keys that work while the focus is elsewhere; what the drawing itself answers is handled there first.
function graphKeyBindings(store: Store, view: { current: GraphView | null }): KeyBinding[] {
  const key = (name: string, description: string, run: (view: GraphView) => void, label?: string): KeyBinding => ({
    key: name,
    label,
    description,
    tab: "graph",
    run: () => view.current && run(view.current),
  });
  return [
    { key: "4", description: "Graph tab", run: () => store.tab.set("graph") },
    key("/", "Search the graph", ({ drawing }) => drawing.search.focus()),
    key("f", "Fit the graph into the window", ({ drawing }) => drawing.app.fit()),
    key("+", "Nearer", ({ drawing }) => drawing.app.camera.zoom(ZOOM_STEP)),
    key("-", "Farther", ({ drawing }) => drawing.app.camera.zoom(1 / ZOOM_STEP), "−"),
    key("Escape", "Clear the selection", () => store.selection.set(null), "Esc"),
  ];
}

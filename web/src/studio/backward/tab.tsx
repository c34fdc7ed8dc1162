// The Backward tab: a pass of torcheer.autograd, forward and backward, one step at a time.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { askDrawing } from "../graph/graph_text";
import { addKeyBindings } from "../key_bindings";
import { useValue, type Store } from "../store";
import { readSteps, type BackwardSteps } from "./backward_steps";
import { PassGraph } from "./pass_graph";
import { StepPanel } from "./step_panel";
import { StepSlider } from "./step_slider";

const PAGE = 10; // steps that Page up and Page down go

/** The tab; the pass is asked for when it is first opened. */
export function BackwardTab({ store }: { store: Store }) {
  const backward = useValue(store.backward);
  const isOpen = useValue(store.tab) === "backward";
  const [steps, setSteps] = useState<BackwardSteps | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setSteps(null);
    setProblem("");
  }, [backward]);
  useEffect(() => {
    if (!isOpen || !backward || steps) return;
    let isStale = false;
    store
      .askBackward()
      .then(({ bytes }) => readSteps(bytes))
      .then((read) => isStale || setSteps(read))
      .catch((error: Error) => isStale || setProblem(error.message));
    return () => {
      isStale = true;
    };
  }, [isOpen, backward, steps]);
  if (!isOpen && !steps) return null;
  if (!backward) return <NoBackward />;
  if (!steps) return <p class="empty">{problem ? `The steps cannot be shown: ${problem}` : "Opening the pass…"}</p>;
  return <Walk key={steps.loss} store={store} steps={steps} />;
}

function NoBackward() {
  return (
    <p class="empty">
      Nothing to walk through: <code>tl.show(loss)</code> of a loss that was recorded by <code>torcheer.autograd</code>{" "}
      shows each step of its backward pass here.
    </p>
  );
}

function Walk({ store, steps }: { store: Store; steps: BackwardSteps }) {
  const last = steps.steps.length - 1;
  const [place, setPlace] = useState(0);
  const go = (target: number): void => setPlace(Math.max(0, Math.min(last, target)));
  const current = useRef(place);
  const host = useRef<HTMLDivElement>(null);
  const { graph, problem } = useGraph(store, steps, host, go);
  current.current = place;
  useEffect(() => graph?.show(steps.steps[place]), [graph, place]);
  useLayoutEffect(() => {
    const by = (count: number) => () => go(current.current + count);
    const key = (name: string, label: string, description: string, run: () => void) => ({
      key: name,
      label,
      description,
      tab: "backward" as const,
      run,
    });
    return addKeyBindings([
      { key: "6", description: "Backward tab", run: () => store.backward.get() && store.tab.set("backward") },
      key("ArrowRight", "→", "Backward: one step on", by(1)),
      key("ArrowLeft", "←", "Backward: one step back", by(-1)),
      key("PageDown", "Page down", `Backward: ${PAGE} steps on`, by(PAGE)),
      key("PageUp", "Page up", `Backward: ${PAGE} steps back`, by(-PAGE)),
      key("Home", "Home", "Backward: the first step", () => go(0)),
      key("End", "End", "Backward: the last step", () => go(last)),
      key("b", "B", "Backward: the same operation in the other direction", () => {
        const other = steps.opposite(current.current);
        if (other >= 0) go(other);
      }),
      key("f", "F", "Backward: fit the graph into its window", () => graph?.fit()),
    ]);
  }, [steps, graph]);
  return (
    <div class="backward-tab">
      <StepSlider steps={steps} place={place} go={go} />
      <div class="backward-middle">
        <div class="backward-graph">
          {!graph && <p class="empty">{problem ? `The graph could not be drawn: ${problem}` : "Drawing the graph…"}</p>}
          <div class="graph-host" ref={host} hidden={problem !== ""} />
        </div>
        <StepPanel steps={steps} place={place} go={go} />
      </div>
    </div>
  );
}

// The drawing of the pass; null until it is there.
function useGraph(
  store: Store,
  steps: BackwardSteps,
  host: { current: HTMLDivElement | null },
  go: (place: number) => void,
): { graph: PassGraph | null; problem: string } {
  const [graph, setGraph] = useState<PassGraph | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let made: PassGraph | null = null;
    let isStale = false;
    const draw = async (): Promise<void> => {
      const text = await askDrawing(store);
      if (isStale) return;
      made = new PassGraph(host.current!, text, steps, go);
      setGraph(made);
    };
    draw().catch((error: Error) => isStale || setProblem(error.message));
    return () => {
      isStale = true;
      made?.dispose();
    };
  }, [steps]);
  return { graph, problem };
}

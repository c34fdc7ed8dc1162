// Hints shown when there is nothing to see, and what to do about it.
import type { ComponentChildren } from "preact";
import { isOver, useLivenessLabel } from "../../shell/liveness";
import { useValue } from "../../store";
import type { NetworkPresenter } from "../presenter";

/** A hint in the middle of the view; nothing if there are values. */
export function EmptyHints({ presenter }: { presenter: NetworkPresenter }) {
  const isContextLost = useValue(presenter.isContextLost);
  return (
    <>
      {!presenter.webgl && (
        <p class="network-flat" role="note">
          {presenter.wasContextLost
            ? "The browser did not give the graphics memory of the 3D picture back, so the layers are shown as flat cells. Load the page again for 3D."
            : "This browser draws no 3D (WebGL 2 is off or missing), so the layers are shown as flat cells. Turning on hardware acceleration in its settings usually helps."}
        </p>
      )}
      {isContextLost && (
        <p class="network-flat" role="status">
          The browser has taken the picture's graphics memory away. It comes back by itself as soon as there is some
          again; if it does not, the layers are shown as flat cells.
        </p>
      )}
      <EmptyReason presenter={presenter} />
    </>
  );
}

// Why there is nothing to see, as far as is known.
function EmptyReason({ presenter }: { presenter: NetworkPresenter }) {
  const { store } = presenter;
  const hello = useValue(store.hello);
  const net = useValue(store.net);
  const displayed = useValue(presenter.displayed);
  const selection = useValue(store.selection);
  const settings = useValue(store.viewSettings);
  const moments = useValue(store.moments);
  if (!hello) return <Hint title="Connecting…">The network comes as soon as the studio's server answers.</Hint>;
  if (!net || !net.layers.length) return <NoNetwork presenter={presenter} source={hello.source} />;
  if (presenter.isWeight(settings.variable) && !selection) {
    return (
      <Hint title="Click a unit" small>
        {settings.variable} are the weights {settings.variable.startsWith("r") ? "into" : "out of"} the unit that you
        click.
      </Hint>
    );
  }
  if (!moments.length) return <NoValues presenter={presenter} source={hello.source} />;
  if (displayed.moment < 0) return <Hint title="Loading…" small late />;
  return displayed.missing.size === net.layers.length ? <NoVariable presenter={presenter} /> : null;
}

function NoNetwork({ presenter, source }: { presenter: NetworkPresenter; source: string }) {
  const { can, status } = useValue(presenter.store.state);
  const tables = useValue(presenter.store.tables);
  if (source === "recording") return <Hint title="No network">This recording holds none.</Hint>;
  if (source === "pass") return <Hint title="No network">Of this pass no layer was recorded.</Hint>;
  if (source === "run") {
    return (
      <Hint title="No network">This run kept none, and is not training now. Its numbers are in Plots and Tables.</Hint>
    );
  }
  if (source === "live" && tables.size && !can.length && status === "idle") {
    return <Hint title="No network">There are only numbers to look at: they are in Plots and Tables.</Hint>;
  }
  return (
    <Hint title="No network yet">
      It appears with the first forward pass.{" "}
      {source !== "live" && (
        <>
          Wrap your loop in <code>with tl.live(model):</code>, or run <code>torcheer studio</code> on a run that trains.
        </>
      )}
    </Hint>
  );
}

function NoValues({ presenter, source }: { presenter: NetworkPresenter; source: string }) {
  const { can, status } = useValue(presenter.store.state);
  if (source !== "live") {
    const sourceName = { recording: "recording", pass: "pass" }[source] ?? "run";
    return (
      <Hint title="No values" small>
        Of this {sourceName} only the layers were kept, no state of them.
      </Hint>
    );
  }
  if (isOver(status)) {
    return (
      <Hint title="No values" small>
        It ended before a state of the network was recorded.
      </Hint>
    );
  }
  const canTrain = status !== "running" && can.includes("train");
  return (
    <Hint title="No values yet" small>
      They come with the next {canTrain ? "step: press Train, or a Step button." : "forward pass."}
    </Hint>
  );
}

// There are values, but none of this variable and item.
function NoVariable({ presenter }: { presenter: NetworkPresenter }) {
  const { variable, item, missing } = useValue(presenter.displayed);
  const reasons = [...new Set(missing.values())];
  const { batch } = useValue(presenter.store.state);
  const isLive = useLivenessLabel(presenter.store) === "Live";
  if (item && batch && item >= batch) {
    return (
      <Hint title={`No item ${item}`} small>
        The batch has {batch} {batch === 1 ? "item" : "items"}, counted from 0.
      </Hint>
    );
  }
  return (
    <Hint title={item ? `No ${variable} of item ${item} at this moment` : `No ${variable} at this moment`} small>
      {reasons.length === 1 && reasons[0]
        ? `${sentence(reasons[0])} `
        : reasons.length > 1
          ? "Point at a layer to read why. "
          : ""}
      {isLive ? "Go to a newer moment, or let the run take a step while you look." : "Try another moment."}
    </Hint>
  );
}

/** Turn half a sentence into a sentence. */
export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

interface HintProps {
  title: string;
  small?: boolean;
  late?: boolean; // shown only if loading takes long
  children?: ComponentChildren;
}

function Hint({ title, small, late, children }: HintProps) {
  return (
    <div class={`network-empty ${small ? "small" : ""} ${late ? "late" : ""}`} role="status">
      <b>{title}</b>
      {children && <p>{children}</p>}
    </div>
  );
}

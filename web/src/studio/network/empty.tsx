// What to do where there is nothing to see.
import type { ComponentChildren } from "preact";
import { useValue } from "../store";
import type { Board } from "./board";

/** A hint in the middle of the picture; nothing where there are values. */
export function Empty({ board }: { board: Board }) {
  const net = useValue(board.store.net);
  const seen = useValue(board.seen);
  const selection = useValue(board.store.selection);
  const look = useValue(board.store.look);
  const moments = useValue(board.store.moments);
  useValue(board.store.hello);
  const weights = board.ofWeights(look.variable);
  return (
    <>
      {!board.webgl && (
        <p class="network-flat" role="note">
          This browser draws no 3D (WebGL 2 is off or missing), so the layers are shown as flat cells. Turning on hardware
          acceleration in its settings usually helps.
        </p>
      )}
      {!net || !net.layers.length ? (
        <Hint title="No network yet">
          It appears with the first forward pass. Wrap your loop in <code>with tl.live(model):</code>, or run{" "}
          <code>torcheer studio</code> on a run that trains.
        </Hint>
      ) : weights && !selection ? (
        <Hint title="Click a unit" small>
          {look.variable} are the weights {look.variable.startsWith("r") ? "into" : "out of"} the unit that you click.
        </Hint>
      ) : seen.moment < 0 && !moments.length ? (
        <Hint title="No values yet" small>
          They come with the next step of the run: press Train, or a Step button.
        </Hint>
      ) : seen.moment >= 0 && seen.missing.length === net.layers.length ? (
        <Hint title={`No ${look.variable} at this moment`} small>
          It was not recorded then. Go to a newer moment, or let the run take a step while you look.
        </Hint>
      ) : null}
    </>
  );
}

function Hint({ title, small, children }: { title: string; small?: boolean; children: ComponentChildren }) {
  return (
    <div class={`network-empty ${small ? "small" : ""}`} role="status">
      <b>{title}</b>
      <p>{children}</p>
    </div>
  );
}

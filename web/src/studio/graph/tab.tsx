// The Graph tab: the drawing of a recorded pass, a page of its own in a frame that may run its script and no more.
import { useEffect, useRef, useState } from "preact/hooks";

import { addKeys } from "../key_bindings";
import { useValue, type Store } from "../store";
import { theme } from "../theme";

/** The drawing, from when the tab is opened first; what was unfolded in it stays so while others are open. */
export function GraphTab({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  const open = useValue(store.tab) === "graph";
  const there = hello?.source === "pass";
  useEffect(() => {
    if (open && hello && !there) store.tab.set("network"); // another run is shown now
  }, [open, hello, there]);
  useEffect(
    () => (there ? addKeys([{ key: "4", what: "Graph tab", run: () => store.tab.set("graph") }]) : undefined),
    [there],
  );
  return there ? <Drawing address={`/graph?run=${hello.run}`} open={open} /> : null;
}

function Drawing({ address, open }: { address: string; open: boolean }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const [shown, setShown] = useState(""); // the address with the theme it began with: another one would load it again
  const [loaded, setLoaded] = useState("");
  const colours = useValue(theme);
  useEffect(() => {
    const same = shown.split("#")[0] === address;
    if (same) frame.current?.contentWindow?.location.replace(`${address}#${colours}`); // a fragment alone loads nothing
    else setShown(open ? `${address}#${colours}` : "");
  }, [address, open, colours]);
  if (!shown) return null;
  return (
    <div class="graph">
      {loaded !== shown && <p class="soft" role="status">Drawing the graph…</p>}
      <iframe ref={frame} src={shown} title="The network's graph" sandbox="allow-scripts allow-downloads" onLoad={() => setLoaded(shown)} />
    </div>
  );
}

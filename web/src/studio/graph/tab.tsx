// The Graph tab: the drawing of a recorded pass, a page of its own in a frame that may run its script and no more.
import { useEffect, useRef, useState } from "preact/hooks";

import { addKeyBindings } from "../key_bindings";
import { useValue, type Store } from "../store";
import { theme } from "../theme";

/** The drawing, from when the tab is opened first; what was unfolded in it stays so while others are open. */
export function GraphTab({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  const isOpen = useValue(store.tab) === "graph";
  const isPass = hello?.source === "pass";
  useEffect(() => {
    if (isOpen && hello && !isPass) store.tab.set("network"); // another run is shown now
  }, [isOpen, hello, isPass]);
  useEffect(
    () => (isPass ? addKeyBindings([{ key: "4", description: "Graph tab", run: () => store.tab.set("graph") }]) : undefined),
    [isPass],
  );
  return isPass ? <DrawingFrame address={`/graph?run=${hello.run}`} open={isOpen} /> : null;
}

function DrawingFrame({ address, open }: { address: string; open: boolean }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const [source, setSource] = useState(""); // the address with the theme it began with: another one would load it again
  const [loaded, setLoaded] = useState("");
  const themeName = useValue(theme);
  useEffect(() => {
    const isSame = source.split("#")[0] === address;
    if (isSame) frame.current?.contentWindow?.location.replace(`${address}#${themeName}`); // a fragment alone loads nothing
    else setSource(open ? `${address}#${themeName}` : "");
  }, [address, open, themeName]);
  if (!source) return null;
  return (
    <div class="graph">
      {loaded !== source && <p class="soft" role="status">Drawing the graph…</p>}
      <iframe ref={frame} src={source} title="The network's graph" sandbox="allow-scripts allow-downloads" onLoad={() => setLoaded(source)} />
    </div>
  );
}

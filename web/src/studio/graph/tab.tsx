// The Graph tab: the drawing of a recorded pass, a separate page in a sandboxed frame that may only run its script.
import { useEffect, useRef, useState } from "preact/hooks";

import { addKeyBindings } from "../key_bindings";
import { useValue, type Store } from "../store";
import { theme } from "../theme";

/** The drawing, loaded when the tab is first opened; it keeps its state while other tabs are open. */
export function GraphTab({ store }: { store: Store }) {
  const hello = useValue(store.hello);
  const run = useValue(store.run);
  const isOpen = useValue(store.tab) === "graph";
  const report = useValue(store.report);
  const isPass = hello?.source === "pass" && report?.graph !== false;
  useEffect(() => {
    if (isOpen && hello && !isPass) store.tab.set("network"); // another run is open now
  }, [isOpen, hello, isPass]);
  useEffect(
    () =>
      isPass ? addKeyBindings([{ key: "4", description: "Graph tab", run: () => store.tab.set("graph") }]) : undefined,
    [isPass],
  );
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (isPass) void store.socket.graphAddress(run).then(setAddress);
  }, [isPass, run]);
  return isPass && address ? <DrawingFrame address={address} open={isOpen} /> : null;
}

function DrawingFrame({ address, open }: { address: string; open: boolean }) {
  const frame = useRef<HTMLIFrameElement>(null);
  const [source, setSource] = useState(""); // the URL with its initial theme: another src would reload the frame
  const [loaded, setLoaded] = useState("");
  const themeName = useValue(theme);
  useEffect(() => {
    const isSame = source.split("#")[0] === address;
    if (isSame)
      frame.current?.contentWindow?.location.replace(`${address}#${themeName}`); // changing only the fragment does not reload
    else setSource(open ? `${address}#${themeName}` : "");
  }, [address, open, themeName]);
  if (!source) return null;
  return (
    <div class="graph">
      {loaded !== source && (
        <p class="soft" role="status">
          Drawing the graph…
        </p>
      )}
      <iframe
        ref={frame}
        src={source}
        title="The network's graph"
        sandbox="allow-scripts allow-downloads"
        onLoad={() => setLoaded(source)}
      />
    </div>
  );
}

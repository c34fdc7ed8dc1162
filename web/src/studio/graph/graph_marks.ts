// What is wrong, and numbers to colour by, in the graph; brought up to date while the tab is open.
import type { App, BoxFault } from "../../graph/app";
import { colourChoices } from "../../graph/render/quantity_scale";
import type { LayerPaths } from "../../graph/layout/layer_paths";
import { faultsOf, faultText, joinFaults, originOf, passOrder } from "../faults/layer_faults";
import type { Store } from "../store";
import { logOverlays } from "./layer_overlays";

/** Keeps the marks of a drawing up to date; returns a function that ends it. */
export function followMarks(store: Store, app: App, layers: readonly string[], paths: LayerPaths): () => void {
  app.colourChoices = () => colourChoices(Object.keys(app.details?.overlays ?? {}), app.data.time_name);
  const update = (): void => {
    if (store.tab.get() !== "graph") return;
    updateFaults(store, app, paths);
    updateOverlays(store, app, layers);
  };
  app.on("colour", () => store.colourBy.set(app.colourScale?.quantity ?? "kind"));
  const signals = [store.colourBy, store.tables, store.alerts, store.badLayers, store.viewSettings, store.tab];
  const ends = signals.map((signal) => (signal.subscribe as (watcher: () => void) => () => void).call(signal, update));
  app.on("details", update);
  update();
  return () => ends.forEach((end) => end());
}

function updateOverlays(store: Store, app: App, layers: readonly string[]): void {
  if (!app.details) return;
  const { overlays } = app.details;
  const facts = { net: store.net.get(), tables: store.tables.get(), alerts: store.alerts.get(), step: store.shownStep };
  const fresh = logOverlays(layers, facts);
  const isNew = Object.keys(fresh).some((quantity) => !(quantity in overlays));
  Object.assign(overlays, fresh);
  if (isNew) app.emit("colours");
  const [shown, chosen] = [app.colourScale?.quantity ?? "kind", store.colourBy.get()];
  if (chosen !== shown && (chosen === "kind" || chosen in overlays)) app.colourBy(chosen);
  else if (shown in fresh) app.colourBy(shown);
}

function updateFaults(store: Store, app: App, paths: LayerPaths): void {
  const faults = layerFaults(store, paths);
  if (JSON.stringify(faults) === JSON.stringify(app.faults)) return;
  app.faults = faults;
  app.emit("faults");
}

function layerFaults(store: Store, paths: LayerPaths): BoxFault[] {
  const alerted = faultsOf(store.alerts.get(), store.shownStep);
  const seen = store.badLayers.get();
  const layers = (store.net.get()?.layers ?? []).map(({ layer }) => {
    const names = [layer.name, ...layer.also];
    return { name: layer.name, names, fault: joinFaults(alerted, names), kinds: seen.get(layer.name) };
  });
  const bad = layers.filter(({ fault, kinds }) => kinds || fault.words.includes("NaN"));
  const order = passOrder(store.hello.get()?.source ?? "", store.viewSettings.get().variable);
  const origin = originOf(bad, store.alerts.get(), store.shownStep, order);
  const faults: BoxFault[] = [];
  for (const { name, fault, kinds } of layers) {
    if (kinds) fault.words = [kinds, ...fault.words.filter((word) => word !== kinds)];
    const text = faultText(fault);
    const path = text && paths.pathOf(name);
    if (path) faults.push({ path, text, first: origin?.name === name ? origin.word : "" });
  }
  return faults;
}

// Alerts: their count, an announcement of the newest, and the list.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { byCause } from "../faults/alert_order";
import type { AlertSeen } from "../messages";
import { useValue, type Store } from "../store";
import { Icon } from "./icons";
import { unwatchedText } from "./liveness";

const MAX_NAMED = 8; // layers
const MAX_LISTED = 200; // of many thousands the first and the last

/** A button with the number of alerts, which opens their list. */
export function Alerts({ store }: { store: Store }) {
  const alerts = useValue(store.alerts);
  const count = useValue(store.alertCount);
  const [open, setOpen] = useState(false);
  const [readCount, setReadCount] = useState(0);
  const box = usePopupClose(open, () => setOpen(false));
  useLayoutEffect(() => {
    if (open || count < readCount) setReadCount(count);
  }, [open, count]);
  const unread = Math.max(0, count - readCount);
  const last = alerts[alerts.length - 1];
  return (
    <div class="popping" ref={box}>
      <button
        class={`quiet alerts-button${unread ? " unread" : ""}`}
        aria-expanded={open}
        aria-label={`Alerts: ${count}${unread ? `, ${unread} new` : ""}`}
        onClick={() => setOpen(!open)}
      >
        <Icon name="bell" />
        {count > 0 && <span class="badge">{count > 999 ? "999+" : count}</span>}
      </button>
      <span class="unseen" role="status" aria-live="polite">
        {unread && last ? `Alert: ${last.text}` : ""}
      </span>
      {open && <AlertList alerts={alerts} count={count} store={store} />}
    </div>
  );
}

function AlertList({ alerts, count, store }: { alerts: AlertSeen[]; count: number; store: Store }) {
  const oldestFirst = byCause(alerts);
  const isLong = alerts.length > MAX_LISTED;
  const first = isLong ? oldestFirst.slice(0, MAX_LISTED / 2) : oldestFirst;
  const last = isLong ? oldestFirst.slice(-MAX_LISTED / 2) : [];
  return (
    <section class="popup alert-list" aria-label="Alerts">
      <h2>Alerts</h2>
      <Coverage hasAlerts={alerts.length > 0} store={store} />
      <AlertItems alerts={first} store={store} />
      {isLong && <p class="soft">{count - MAX_LISTED} between these are not listed.</p>}
      {isLong && <AlertItems alerts={last} store={store} />}
    </section>
  );
}

function AlertItems({ alerts, store }: { alerts: AlertSeen[]; store: Store }) {
  return (
    <ul>
      {alerts.map((alert) => (
        <li
          key={alert.id || alert.text + alert.step}
          class={alert.follows ? `${alert.severity} consequence` : alert.severity}
        >
          <p>{alert.text}</p>
          <p class="soft">
            {[alert.severity, `step ${alert.step}`, alert.rule].filter(Boolean).join(" · ")}
            <LayerLink alert={alert} store={store} />
          </p>
        </li>
      ))}
    </ul>
  );
}

// What was judged at all: an empty list means something only where rules run.
function Coverage({ hasAlerts, store }: { hasAlerts: boolean; store: Store }) {
  const [state, hello, bad] = [useValue(store.state), useValue(store.hello), useValue(store.badLayers)];
  const shown = [...bad].map(([layer, kinds]) => `${layer} (${kinds})`);
  const more = shown.length > MAX_NAMED ? `, … ${shown.length - MAX_NAMED} more` : "";
  return (
    <>
      {state.watched && !hasAlerts && !shown.length && (
        <p class="soft">Nothing looks wrong so far. What the watch rules find appears here.</p>
      )}
      {shown.length > 0 && (
        <p class="bad">
          In what is shown, not finite: {shown.slice(0, MAX_NAMED).join(", ")}
          {more}.
        </p>
      )}
      {!state.watched && <p class="soft">{unwatchedText(hello?.source ?? "", state.status, state.unit)}</p>}
    </>
  );
}

function LayerLink({ alert, store }: { alert: AlertSeen; store: Store }) {
  if (!alert.layer) return null;
  const placed = store.net
    .get()
    ?.layers.find(({ layer }) => layer.name === alert.layer || layer.also.includes(alert.layer));
  if (!placed) return <> · {alert.layer}</>;
  const show = (): void => {
    store.selection.set({ layer: placed.layer.name, unit: 0 });
    if (store.tab.get() !== "graph") store.tab.set("network");
    if (store.moments.get().length > 1) store.seekStep(alert.step); // the slider goes to where it happened
  };
  return (
    <>
      {" · "}
      <button class="link" onClick={show}>
        {alert.layer}
      </button>
    </>
  );
}

/** Close a popup on Escape or a click outside; returns the ref for its outermost element. */
export function usePopupClose(open: boolean, close: () => void) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!open) return;
    const handleKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.preventDefault(); // Escape closes this list and keeps the selection behind it
      close();
      box.current?.querySelector("button")?.focus();
    };
    const handleClick = (event: MouseEvent): void => {
      if (!box.current?.contains(event.target as Node)) close();
    };
    document.addEventListener("keydown", handleKey, true); // before the page's own key bindings
    document.addEventListener("mousedown", handleClick);
    return () => {
      document.removeEventListener("keydown", handleKey, true);
      document.removeEventListener("mousedown", handleClick);
    };
  }, [open]);
  return box;
}

// The order in which alerts are listed.
import type { AlertSeen } from "../messages";

/** The alerts oldest first; those that may follow from another stand under it. */
export function byCause(alerts: readonly AlertSeen[]): AlertSeen[] {
  const oldestFirst = [...alerts].sort((a, b) => a.step - b.step);
  const consequences = new Map<string, AlertSeen[]>(); // by their cause
  for (const alert of oldestFirst) if (!alert.follows) consequences.set(nameOf(alert), []);
  const roots = oldestFirst.filter((alert) => {
    const group = consequences.get(alert.follows);
    group?.push(alert);
    return !group;
  });
  return roots.flatMap((root) => {
    const under = consequences.get(nameOf(root)) ?? [];
    consequences.delete(nameOf(root)); // another model's alert may begin alike
    return [root, ...under];
  });
}

// As `follows` names an alert.
function nameOf({ rule, step }: AlertSeen): string {
  return `${rule} at step ${step}`;
}

// The numeric check of a gradient: the rule's numbers beside central differences.
import { formatNumber } from "../tables/value_format";
import type { CheckFacts, TensorFacts } from "./backward_steps";

/** The check of one gradient; `name` says whose. */
export function CheckView({ check, of, name }: { check: CheckFacts; of: TensorFacts | null; name: string }) {
  if (check.note) {
    return (
      <p class="soft">
        <b>{name}</b> not checked: {check.note}.
      </p>
    );
  }
  const rows = check.rows ?? [];
  const total = (of?.shape ?? []).reduce((product, length) => product * length, 1);
  const kinks = rows.filter(([, , , , isKink]) => isKink).length;
  return (
    <div class="backward-check">
      <p>
        <span class={check.passed ? "backward-good" : "backward-bad"}>{check.passed ? "✓ agrees" : "✗ differs"}</span>{" "}
        <b>{name}</b>{" "}
        <span class="soft">
          {rows.length < total ? `${rows.length} of ${total.toLocaleString("en")} numbers` : "every number"}, largest
          error {formatNumber(check.worst ?? 0, 2)}
        </span>
      </p>
      <div class="backward-scroll">
        <table class="backward-check-rows">
          <thead>
            <tr>
              <th scope="col">at</th>
              <th scope="col">rule</th>
              <th scope="col">differences</th>
              <th scope="col">error</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(([index, byRule, byDifferences, error, isKink]) => (
              <tr key={index.join()}>
                <th scope="row">{index.length ? `[${index.join(", ")}]` : "–"}</th>
                <td>{formatNumber(byRule, 6)}</td>
                <td>{formatNumber(byDifferences, 6)}</td>
                <td>{isKink ? "kink" : formatNumber(error, 2)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {kinks > 0 && (
        <p class="soft">A kink: the slopes to the left and to the right differ, so any number between them is right.</p>
      )}
    </div>
  );
}

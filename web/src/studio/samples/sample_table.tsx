// A logged table, as it is; the server sends its first rows.
import type { Json } from "../messages";
import { parseNumbers } from "../non_finite";
import { formatValue } from "../tables/value_format";

/** The table. */
export function SampleTable({ names, columns, label }: { names: string[]; columns: Json[][]; label: string }) {
  const count = Math.max(0, ...columns.map((cells) => cells.length));
  const numeric = columns.map((cells) =>
    cells.every((cell) => cell === null || typeof cell !== "string" || typeof parseNumbers(cell) === "number"),
  );
  return (
    <div class="grid-box" tabIndex={0} role="region" aria-label={label}>
      <table class="grid">
        <thead>
          <tr>
            {names.map((name, column) => (
              <th key={column} scope="col" class={numeric[column] ? "numeric" : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: count }, (_, row) => (
            <tr key={row} class={row % 2 ? "odd" : undefined}>
              {columns.map((cells, column) => (
                <Cell key={column} cell={numeric[column] ? parseNumbers(cells[row] ?? null) : (cells[row] ?? null)} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ cell }: { cell: Json }) {
  if (cell === null) return <td class="missing">–</td>;
  const text = formatValue(cell);
  if (typeof cell === "number")
    return (
      <td class={Number.isFinite(cell) ? "numeric" : "numeric strange"} title={String(cell)}>
        {text}
      </td>
    );
  return <td title={text}>{text}</td>;
}

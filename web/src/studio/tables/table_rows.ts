// A table in memory: columns that grow at their end.
import type { Json, Rows, TableHead } from "../messages";

/** Columns are shared between versions and only ever grow; `generation` changes when they are restarted. */
export interface Table {
  head: TableHead;
  columns: Record<string, Json[]>;
  count: number;
  generation: number;
  mostGroups?: number; // lines of a column that a plot may have; a few by default
}

let generations = 0;

/** A table without rows. */
export function emptyTable(head: TableHead): Table {
  return { head, columns: Object.create(null) as Table["columns"], count: 0, generation: ++generations };
}

/** Insert rows at `rows.first`; 0 restarts the table, and rows sent twice are replaced. */
export function withRows(table: Table, rows: Pick<Rows, "first" | "columns">): Table {
  const overlaps = rows.first < table.count;
  const base = rows.first === 0 ? emptyTable(table.head) : overlaps ? truncateTable(table, rows.first) : table;
  const added = Math.max(0, ...Object.values(rows.columns).map((cells) => cells.length));
  const count = rows.first + added;
  for (const name of Object.keys(rows.columns)) {
    const column = (base.columns[name] ??= []);
    while (column.length < rows.first) column.push(null); // a column that came later, or lost rows
    for (const cell of rows.columns[name]) column.push(cell);
  }
  for (const column of Object.values(base.columns)) while (column.length < count) column.push(null);
  return { ...base, count };
}

function truncateTable(table: Table, count: number): Table {
  const copy = emptyTable(table.head);
  for (const name of Object.keys(table.columns)) copy.columns[name] = table.columns[name].slice(0, count);
  return { ...copy, count };
}

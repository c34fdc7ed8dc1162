// The rows of a comparison: which are shown, and which is looked at.
import type { Selection } from "../store";
import { orderRows, type Sort } from "../tables/row_order";
import type { Table } from "../tables/table_rows";

export const TABLE = "differences";
const [EQUAL, FIRST] = [/^equal/, "differs first"];
const SHOWN_ALWAYS = new Set(["Layer", "Shape", "Result"]);

/** The table without columns that are empty throughout: files have no counterparts. */
export function filledColumns(table: Table): Table {
  const columns = table.head.columns.filter(
    ({ name }) => SHOWN_ALWAYS.has(name) || table.columns[name]?.some((cell) => cell !== null && cell !== ""),
  );
  return { ...table, head: { ...table.head, columns } };
}

/** The rows to show, in order; `isShort` leaves out those that are equal. */
export function shownRows(table: Table, filter: string, sort: Sort | null, isShort: boolean): Uint32Array {
  const rows = orderRows(table, filter, sort);
  return isShort ? rows.filter((row) => !EQUAL.test(resultOf(table, row))) : rows;
}

export function layerOf(table: Table, row: number): string {
  return String(table.columns.Layer?.[row] ?? "");
}

export function resultOf(table: Table, row: number): string {
  return String(table.columns.Result?.[row] ?? "");
}

/** The row of a layer; -1 if there is none. */
export function rowOf(table: Table, layer: string): number {
  return layer ? (table.columns.Layer ?? []).indexOf(layer) : -1;
}

/** How a row is marked: the first that differs, others that do, what one side lacks. */
export function toneOf(table: Table, row: number): string {
  const result = resultOf(table, row);
  if (result === FIRST) return "first-difference";
  return EQUAL.test(result) || result === "by rounding" ? "" : "different";
}

/** The layer that is looked at: the chosen one, what other tabs have selected, the first that differs, or the first. */
export function lookedAt(table: Table, chosen: string, selection: Selection | null, first: string): string {
  return [chosen, selection?.layer ?? "", first, layerOf(table, 0)].find((name) => rowOf(table, name) >= 0) ?? "";
}

/** The range of both sides, so that one colour means one number; null without a finite number. */
export function sharedRange(ranges: ([number, number] | null | undefined)[]): [number, number] | null {
  const known = ranges.filter((range) => range !== null && range !== undefined);
  if (!known.length) return null;
  return [Math.min(...known.map(([lo]) => lo)), Math.max(...known.map(([, hi]) => hi))];
}

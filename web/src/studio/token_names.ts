// Names of tokens, as given by `token_names=`: which stand at an axis of attention heads.

/** The names of a batch item's tokens, where there are as many as an axis is long; else null. */
export function namesFor(names: readonly string[][], item: number, length: number): readonly string[] | null {
  const own = names.length === 1 ? names[0] : names[item];
  return own?.length === length && length > 0 ? own : null;
}

/** The names at both axes of heads: of queries, the rows, and of keys, the columns. */
export function headNames(names: readonly string[][], item: number, shape: readonly number[]): HeadNames {
  const [rows, columns] = shape.slice(-2);
  return { rows: namesFor(names, item, rows), columns: namesFor(names, item, columns) };
}
export type HeadNames = { rows: readonly string[] | null; columns: readonly string[] | null };

/** "the → cat": from which token to which a head looks; "" without names. */
export function lookText({ rows, columns }: HeadNames, row: number, column: number): string {
  const [from, to] = [rows?.[row] ?? "", columns?.[column] ?? ""];
  return from && to ? `${from} → ${to}` : from || (to && `→ ${to}`);
}

// Tables as CSV, and handing text to the user: download and clipboard.
import type { Json } from "../messages";

/** Format rows as CSV; cells are quoted if needed, tensors written as JSON. */
export function formatCsv(names: string[], rows: Iterable<Json[]>, separator = ","): string {
  const lines = [names.map((name) => quoteCell(name, separator)).join(separator)];
  for (const row of rows) lines.push(row.map((cell) => quoteCell(formatCell(cell), separator)).join(separator));
  return lines.join("\r\n") + "\r\n";
}

function formatCell(cell: Json): string {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "string" ? cell : typeof cell === "object" ? JSON.stringify(cell) : String(cell);
}

function quoteCell(text: string, separator: string): string {
  return /["\r\n]/.test(text) || text.includes(separator) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the browser download something. */
export function download(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Copy text to the clipboard; pages without a secure context need the old way. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyWithTextarea(text);
  }
}

function copyWithTextarea(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

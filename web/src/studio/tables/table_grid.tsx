// A table on the screen: only the rows in sight are drawn, headers sort.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Column, Json } from "../messages";
import { Icon } from "../shell/icons";
import { Tensor, sizeOf } from "./tensor_cell";
import { nextSort, type Sort } from "./row_order";
import type { Table } from "./table_rows";
import { plain } from "./value_format";

const ROW = 26;
const TENSOR_ROW = 44;
const SPARE = 6; // rows above and below those in sight
const TALLEST = 8_000_000; // pixels that every browser can scroll; longer tables move faster than the bar

interface Props {
  table: Table;
  order: Uint32Array;
  sort: Sort | null;
  setSort: (sort: Sort | null) => void;
  compare: (column: string) => void; // the rows of a column of tensors
}

/** The grid. */
export function Grid({ table, order, sort, setSort, compare }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const row = table.head.columns.some(({ type }) => type === "tensor") ? TENSOR_ROW : ROW;
  const whole = order.length * row;
  const tall = Math.min(whole, TALLEST);
  useFollowing(box, order.length, sort);
  useEffect(() => watchSize(box.current!, setSeen), []);
  const room = Math.max(1, tall - seen.height);
  const offset = whole > tall ? (seen.top / room) * (whole - seen.height) : seen.top;
  const first = Math.max(0, Math.floor(offset / row) - SPARE);
  const last = Math.min(order.length, Math.ceil((offset + seen.height) / row) + SPARE);
  const shift = seen.top + first * row - offset;
  const rows = Array.from(order.subarray(first, last));
  return (
    <div class="grid-box" ref={box} tabIndex={0} role="region" aria-label={table.head.title} onScroll={({ currentTarget }) => look(currentTarget, setSeen)}>
      <table class="grid" aria-rowcount={order.length + 1} style={{ height: `${tall + 30}px` }}>
        <thead>
          <tr aria-rowindex={1}>
            {table.head.columns.map((column) => (
              <Head key={column.name} column={column} sort={sort} setSort={setSort} compare={compare} />
            ))}
          </tr>
        </thead>
        <tbody>
          <tr class="spare" aria-hidden="true" style={{ height: `${shift}px` }} />
          {rows.map((number, index) => (
            <tr key={number} aria-rowindex={first + index + 2} style={{ height: `${row}px` }} class={(first + index) % 2 ? "odd" : undefined}>
              {table.head.columns.map((column) => (
                <Cell key={column.name} column={column} cells={table.columns[column.name]} row={number} height={row - 8} />
              ))}
            </tr>
          ))}
          <tr class="spare" aria-hidden="true" />
        </tbody>
      </table>
    </div>
  );
}

function look(box: HTMLElement, set: (seen: { top: number; height: number }) => void): void {
  set({ top: box.scrollTop, height: box.clientHeight });
}

function watchSize(box: HTMLElement, set: (seen: { top: number; height: number }) => void): () => void {
  const observer = new ResizeObserver(() => look(box, set));
  observer.observe(box);
  return () => observer.disconnect();
}

// Who has scrolled to the end sees new rows come; who has not is left where they are.
function useFollowing(box: { current: HTMLDivElement | null }, count: number, sort: Sort | null): void {
  const before = useRef(true);
  const element = box.current;
  if (element) before.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
  useLayoutEffect(() => {
    if (box.current && before.current && !sort) box.current.scrollTop = box.current.scrollHeight;
  }, [count]);
}

function Head({ column, sort, setSort, compare }: Pick<Props, "sort" | "setSort" | "compare"> & { column: Column }) {
  const mine = sort?.column === column.name ? sort : null;
  const numeric = column.type === "int" || column.type === "float";
  if (column.type === "tensor") {
    return (
      <th scope="col">
        <button title={`Compare the rows of ${column.name}: similarity, principal components, clusters`} onClick={() => compare(column.name)}>
          {column.name} <Icon name="matrix" />
        </button>
      </th>
    );
  }
  return (
    <th scope="col" class={numeric ? "numeric" : undefined} aria-sort={mine ? (mine.down ? "descending" : "ascending") : "none"}>
      <button onClick={() => setSort(nextSort(sort, column.name))}>
        {column.name}
        <span class="arrow" aria-hidden="true">{mine ? (mine.down ? "▼" : "▲") : ""}</span>
      </button>
    </th>
  );
}

function Cell({ column, cells, row, height }: { column: Column; cells: Json[] | undefined; row: number; height: number }) {
  const cell = cells?.[row] ?? null;
  const numeric = column.type === "int" || column.type === "float";
  if (cell === null) return <td class={numeric ? "numeric missing" : "missing"}>–</td>;
  if (column.type === "tensor" && Array.isArray(cell)) {
    return (
      <td>
        <Tensor cell={cell} size={sizeOf(cells!)} height={height} />
      </td>
    );
  }
  const text = plain(cell);
  if (typeof cell === "number") return <td class={Number.isFinite(cell) ? "numeric" : "numeric strange"} title={String(cell)}>{text}</td>;
  return <td title={text}>{text}</td>;
}

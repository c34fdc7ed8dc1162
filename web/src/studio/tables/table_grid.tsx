// A virtualized table: only visible rows are rendered; headers sort.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import type { Column, Json } from "../messages";
import { selectedNames } from "../selected_names";
import { Icon } from "../shell/icons";
import { useValue } from "../signal";
import { TensorCell, maxAbsolute } from "./tensor_cell";
import { nextSort, type Sort } from "./row_order";
import type { Table } from "./table_rows";
import { formatTime, formatValue } from "./value_format";

const ROW_HEIGHT = 26;
const TENSOR_ROW_HEIGHT = 44;
const OVERSCAN_ROWS = 6; // rows rendered above and below the visible ones
const MAX_HEIGHT_PX = 8_000_000; // height every browser can scroll; longer tables scroll faster than the bar

interface TableGridProps {
  table: Table;
  order: Uint32Array;
  sort: Sort | null;
  setSort: (sort: Sort | null) => void;
  compare?: (column: string) => void; // compares the rows of a tensor column
  choice?: RowChoice; // rows that can be chosen
  reveal?: number; // a row to scroll to when it changes; -1: none
  isFollowing?: boolean; // whether a table that is scrolled to its end stays there as rows come; it does, if not said
}

/** Rows that people choose: some are checked, one is the current one. */
export interface RowChoice {
  label: (row: number) => string;
  isChecked?: (row: number) => boolean;
  check?: (row: number, isRange: boolean) => void; // with Shift a range; without it no row can be checked
  isCurrent: (row: number) => boolean;
  setCurrent: (row: number) => void;
  open: (row: number) => void; // by double click, or Enter
  swatch?: (row: number) => string; // a colour; "": none
  tone?: (row: number) => string; // a class; "": none
}

/** The grid. */
export function TableGrid(props: TableGridProps) {
  const { table, order, sort, setSort, compare, choice, reveal = -1, isFollowing = true } = props;
  const box = useRef<HTMLDivElement>(null);
  const [viewport, setViewport] = useState({ top: 0, height: 600 });
  const rowHeight = table.head.columns.some(({ type }) => type === "tensor") ? TENSOR_ROW_HEIGHT : ROW_HEIGHT;
  const fullHeight = order.length * rowHeight;
  const scrollHeight = Math.min(fullHeight, MAX_HEIGHT_PX);
  useStickToEnd(box, order.length, sort, isFollowing);
  useEffect(() => {
    const place = order.indexOf(reveal);
    if (place >= 0) box.current!.scrollTop = Math.max(0, (place / order.length) * scrollHeight - viewport.height / 2);
  }, [reveal]);
  useEffect(() => watchSize(box.current!, setViewport), []);
  const scrollRange = Math.max(1, scrollHeight - viewport.height);
  const offset =
    fullHeight > scrollHeight ? (viewport.top / scrollRange) * (fullHeight - viewport.height) : viewport.top;
  const first = Math.max(0, Math.floor(offset / rowHeight) - OVERSCAN_ROWS);
  const last = Math.min(order.length, Math.ceil((offset + viewport.height) / rowHeight) + OVERSCAN_ROWS);
  const shift = viewport.top + first * rowHeight - offset;
  const rows = Array.from(order.subarray(first, last));
  const isSelected = useValue(selectedNames);
  const isMarked = (row: number): boolean =>
    choice?.isCurrent(row) ??
    table.head.columns.some(
      ({ name, type }) => type === "text" && isSelected(String(table.columns[name]?.[row] ?? "")),
    );
  return (
    <div
      class="grid-box"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={table.head.title}
      onScroll={({ currentTarget }) => readViewport(currentTarget, setViewport)}
    >
      <table class="grid" aria-rowcount={order.length + 1} style={{ height: `${scrollHeight + 30}px` }}>
        <thead>
          <tr aria-rowindex={1}>
            {choice?.check && <th class="choice" scope="col" aria-label="Chosen" />}
            {table.head.columns.map((column) => (
              <HeaderCell key={column.name} column={column} sort={sort} setSort={setSort} compare={compare} />
            ))}
          </tr>
        </thead>
        <tbody>
          <tr class="spare" aria-hidden="true" style={{ height: `${shift}px` }} />
          {rows.map((number, index) => (
            <tr
              key={number}
              aria-rowindex={first + index + 2}
              style={{ height: `${rowHeight}px` }}
              class={rowClass(first + index, isMarked(number), choice?.tone?.(number))}
              aria-current={isMarked(number) ? "true" : undefined}
              {...(choice ? rowActions(choice, number) : {})}
            >
              {choice?.check && <ChoiceCell choice={choice} row={number} />}
              {table.head.columns.map((column) => (
                <Cell
                  key={column.name}
                  column={column}
                  cells={table.columns[column.name]}
                  row={number}
                  height={rowHeight - 8}
                />
              ))}
            </tr>
          ))}
          <tr class="spare" aria-hidden="true" />
        </tbody>
      </table>
    </div>
  );
}

// Clicks and keys of a row that can be chosen; those of its check box are its own.
function rowActions(choice: RowChoice, row: number) {
  return {
    tabIndex: 0,
    onClick: () => choice.setCurrent(row),
    onDblClick: () => choice.open(row),
    onKeyDown: (event: KeyboardEvent) => {
      if (event.target !== event.currentTarget) return;
      const actions: Record<string, () => void> = {
        Enter: () => choice.open(row),
        " ": () => choice.check?.(row, event.shiftKey),
        ArrowDown: () => focusRow(event.currentTarget, "nextElementSibling"),
        ArrowUp: () => focusRow(event.currentTarget, "previousElementSibling"),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      actions[event.key]();
    },
    onFocus: (event: FocusEvent) => event.target === event.currentTarget && choice.setCurrent(row),
  };
}

function focusRow(row: EventTarget | null, sibling: "nextElementSibling" | "previousElementSibling"): void {
  const next = row instanceof Element ? row[sibling] : null;
  if (next instanceof HTMLElement && next.tabIndex >= 0) next.focus();
}

function ChoiceCell({ choice, row }: { choice: RowChoice; row: number }) {
  const colour = choice.swatch?.(row);
  return (
    <td class="choice" onClick={(event) => event.stopPropagation()} onDblClick={(event) => event.stopPropagation()}>
      <input
        type="checkbox"
        aria-label={`Choose ${choice.label(row)}`}
        checked={choice.isChecked?.(row)}
        style={colour ? { accentColor: colour } : undefined}
        onClick={(event) => choice.check?.(row, event.shiftKey)}
      />
    </td>
  );
}

// A number that is none, or a count of such numbers in a layer's values.
function isStrange(column: string, cell: number): boolean {
  return !Number.isFinite(cell) || (cell > 0 && (column === "nans" || column === "infs"));
}

function rowClass(index: number, isMarked: boolean, tone = ""): string | undefined {
  return [index % 2 ? "odd" : "", isMarked ? "marked" : "", tone].filter(Boolean).join(" ") || undefined;
}

function readViewport(box: HTMLElement, set: (viewport: { top: number; height: number }) => void): void {
  set({ top: box.scrollTop, height: box.clientHeight });
}

function watchSize(box: HTMLElement, set: (viewport: { top: number; height: number }) => void): () => void {
  const observer = new ResizeObserver(() => readViewport(box, set));
  observer.observe(box);
  return () => observer.disconnect();
}

// If scrolled to the end, stay there as rows arrive; otherwise keep the position.
function useStickToEnd(box: { current: HTMLDivElement | null }, count: number, sort: Sort | null, does: boolean): void {
  const wasAtEnd = useRef(true);
  const element = box.current;
  if (element) wasAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
  useLayoutEffect(() => {
    if (box.current && wasAtEnd.current && !sort && does) box.current.scrollTop = box.current.scrollHeight;
  }, [count]);
}

function HeaderCell({
  column,
  sort,
  setSort,
  compare,
}: Pick<TableGridProps, "sort" | "setSort" | "compare"> & { column: Column }) {
  const activeSort = sort?.column === column.name ? sort : null;
  const numeric = column.type === "int" || column.type === "float";
  if (column.type === "tensor") {
    return (
      <th scope="col">
        <button
          title={`Compare the rows of ${column.name}: similarity, principal components, clusters`}
          onClick={() => compare?.(column.name)}
        >
          {column.name} <Icon name="matrix" />
        </button>
      </th>
    );
  }
  return (
    <th
      scope="col"
      class={numeric ? "numeric" : undefined}
      aria-sort={activeSort ? (activeSort.down ? "descending" : "ascending") : "none"}
    >
      <button onClick={() => setSort(nextSort(sort, column.name))}>
        {column.name}
        <span class="arrow" aria-hidden="true">
          {activeSort ? (activeSort.down ? "▼" : "▲") : ""}
        </span>
      </button>
    </th>
  );
}

function Cell({
  column,
  cells,
  row,
  height,
}: {
  column: Column;
  cells: Json[] | undefined;
  row: number;
  height: number;
}) {
  const cell = cells?.[row] ?? null;
  const numeric = column.type === "int" || column.type === "float";
  if (cell === null) return <td class={numeric ? "numeric missing" : "missing"}>–</td>;
  if (column.type === "tensor" && Array.isArray(cell)) {
    return (
      <td>
        <TensorCell cell={cell} size={maxAbsolute(cells!)} height={height} />
      </td>
    );
  }
  const text = column.type === "time" && typeof cell === "number" ? formatTime(cell) : formatValue(cell);
  if (column.type === "time") return <td title={text}>{text}</td>;
  if (typeof cell === "number")
    return (
      <td class={isStrange(column.name, cell) ? "numeric strange" : "numeric"} title={String(cell)}>
        {text}
      </td>
    );
  return <td title={text}>{text}</td>;
}

// The differences of the chosen runs' configs.
import { useMemo, useState } from "preact/hooks";

import type { Store } from "../store";
import { orderRows, type Sort } from "../tables/row_order";
import { TableGrid } from "../tables/table_grid";
import { differencesOf } from "./config_differences";
import { useDetails } from "./run_details";
import { runLabel, type RunRows } from "./run_list";

const MOST_RUNS = 20;

/** The panel: of the checked runs, or of the first of the list. */
export function DifferencesPanel({ store, list, rows }: { store: Store; list: RunRows; rows: number[] }) {
  const shown = rows.slice(0, MOST_RUNS);
  const details = useDetails(
    store,
    shown.map((row) => list.ids[row]),
  );
  const [sort, setSort] = useState<Sort | null>(null);
  const differences = useMemo(() => {
    if (!details || typeof details === "string" || details.length !== shown.length) return null;
    return differencesOf(
      details.map(({ config }) => config),
      shown.map((row) => runLabel(list, row)),
    );
  }, [details, list]);
  if (typeof details === "string") return <p class="empty">{details}</p>;
  if (!differences) return <p class="empty">Reading…</p>;
  const { table, same } = differences;
  const remark = [
    same ? `${same} settings are the same in all of them.` : "",
    rows.length > shown.length ? `The first ${MOST_RUNS} of ${rows.length} runs are compared.` : "",
  ].join(" ");
  return (
    <div class="differences">
      {table.count ? (
        <TableGrid table={table} order={orderRows(table, "", sort)} sort={sort} setSort={setSort} />
      ) : (
        <p class="empty">{same ? "These runs have the same config." : "These runs have no config."}</p>
      )}
      {table.count > 0 && <p class="soft remark">{remark}</p>}
    </div>
  );
}

// The Tables tab.
import type { Store } from "../store";
import { NoTables, TableChooser, useTable } from "./table_chooser";
import { TablePane } from "./table_pane";

/** One table at a time. */
export function TablesTab({ store }: { store: Store }) {
  const { table, all } = useTable(store);
  if (!table) return <NoTables store={store} plural="tables" />;
  return (
    <div class="tables-tab">
      <TableChooser all={all} table={table} store={store} />
      <TablePane key={table.head.name} store={store} table={table} />
    </div>
  );
}

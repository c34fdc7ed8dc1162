// Choose the columns of the list, among thousands by a search.
import { useState } from "preact/hooks";

import { Dialog } from "../shell/dialog";
import { useValue } from "../store";
import { chooseColumns, columns, shownColumns, visibleColumns, type RunColumn } from "./run_list";

const GROUPS = [
  ["run", "Run"],
  ["config", "Config"],
  ["result", "Results"],
] as const;
const MOST_SHOWN = 100; // of a group

/** The dialog. */
export function ColumnChooser({ close }: { close: () => void }) {
  const all = useValue(columns);
  const shown = visibleColumns(all, useValue(shownColumns)).map(({ name }) => name);
  const [search, setSearch] = useState("");
  const matches = all.filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()));
  const toggle = (name: string): void =>
    chooseColumns(shown.includes(name) ? shown.filter((other) => other !== name) : [...shown, name]);
  return (
    <Dialog title="Columns" wide close={close}>
      <div class="row between">
        <input
          type="search"
          aria-label="Find a column"
          placeholder={`Find one of ${all.length.toLocaleString("en")} columns`}
          value={search}
          onInput={({ currentTarget }) => setSearch(currentTarget.value)}
        />
        <button onClick={() => chooseColumns(null)}>The usual ones</button>
      </div>
      <div class="column-groups">
        {GROUPS.map(([group, title]) => (
          <ColumnGroup
            key={group}
            title={title}
            members={matches.filter((column) => column.group === group)}
            shown={shown}
            toggle={toggle}
          />
        ))}
      </div>
    </Dialog>
  );
}

interface ColumnGroupProps {
  title: string;
  members: RunColumn[];
  shown: string[];
  toggle: (name: string) => void;
}

function ColumnGroup({ title, members, shown, toggle }: ColumnGroupProps) {
  const first = [...members].sort((a, b) => Number(shown.includes(b.name)) - Number(shown.includes(a.name)));
  return (
    <fieldset>
      <legend>
        {title} <span class="soft">{members.length.toLocaleString("en")}</span>
      </legend>
      <ul class="columns">
        {first.slice(0, MOST_SHOWN).map(({ name, varies, count }) => (
          <li key={name}>
            <label class="check" title={`${name}: in ${count} runs${varies ? "" : ", the same in all"}`}>
              <input
                type="checkbox"
                checked={shown.includes(name)}
                disabled={name === "Name"}
                onChange={() => toggle(name)}
              />
              <span class={varies ? "name" : "name soft"}>{name}</span>
            </label>
          </li>
        ))}
      </ul>
      {members.length > MOST_SHOWN && (
        <p class="soft">{(members.length - MOST_SHOWN).toLocaleString("en")} more: search for them.</p>
      )}
      {!members.length && <p class="soft">None.</p>}
    </fieldset>
  );
}

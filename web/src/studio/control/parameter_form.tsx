// The parameter form at the left: groups of parameters, what may be changed as fields, the rest as text.
import { useState } from "preact/hooks";

import type { Parameter } from "../messages";
import { useValue, type Store } from "../store";
import { useTableAlone } from "../tables/table_chooser";
import { Field } from "./parameter_field";
import { Rates } from "./update_rates";

const MANY = 12; // from so many on, a box to search them is worth its room

/** The form. */
export function Parameters({ store }: { store: Store }) {
  const parameters = useValue(store.parameters);
  const hello = useValue(store.hello);
  const alone = useTableAlone(store);
  const [wanted, setWanted] = useState("");
  const found = parameters.filter(({ name, group }) => `${group} ${name}`.toLowerCase().includes(wanted.toLowerCase()));
  return (
    <aside class="parameters" id="parameters" aria-label="Parameters">
      {hello?.source === "live" && !alone && <Rates store={store} />}
      {parameters.length >= MANY && (
        <input
          type="search"
          class="search"
          placeholder="Find a parameter"
          aria-label="Find a parameter"
          value={wanted}
          onInput={({ currentTarget }) => setWanted(currentTarget.value)}
        />
      )}
      {!parameters.length && (
        <p class="soft empty-note">{!hello ? "Loading…" : alone ? "A table has no parameters." : "No parameters: the run has not named any."}</p>
      )}
      {parameters.length > 0 && !found.length && <p class="soft empty-note">No parameter is called “{wanted}”.</p>}
      {grouped(found).map(([group, members]) => (
        <Group key={group} title={group || "Parameters"} members={members} store={store} />
      ))}
    </aside>
  );
}

function Group({ title, members, store }: { title: string; members: Parameter[]; store: Store }) {
  const other = useValue(store.controller) === "other";
  const lost = useValue(store.connection) !== "open";
  return (
    <fieldset class="fields">
      <legend>{title}</legend>
      {members.map((parameter) => (
        <Field
          key={parameter.name}
          parameter={parameter}
          locked={other || lost}
          change={(value) => store.change(parameter.name, value)}
        />
      ))}
    </fieldset>
  );
}

/** By group, in the order in which groups come first. */
export function grouped(parameters: Parameter[]): [string, Parameter[]][] {
  const groups = new Map<string, Parameter[]>();
  for (const parameter of parameters) {
    const members = groups.get(parameter.group);
    if (members) members.push(parameter);
    else groups.set(parameter.group, [parameter]);
  }
  return [...groups];
}

// The parameter form on the left: groups of parameters, editable ones as inputs, the others as text.
import { useState } from "preact/hooks";

import type { Parameter } from "../messages";
import { useValue, type Store } from "../store";
import { useTableOnly } from "../tables/table_chooser";
import { ParameterField } from "./parameter_field";
import { UpdateRates } from "./update_rates";

const MIN_SEARCHABLE = 12; // number of parameters from which a search box is shown

/** The parameter form. */
export function ParameterForm({ store }: { store: Store }) {
  const parameters = useValue(store.parameters);
  const hello = useValue(store.hello);
  const tableOnly = useTableOnly(store);
  const [query, setQuery] = useState("");
  const matches = parameters.filter(({ name, group }) =>
    `${group} ${name}`.toLowerCase().includes(query.toLowerCase()),
  );
  return (
    <aside class="parameters" id="parameters" aria-label="Parameters">
      {hello?.source === "live" && !tableOnly && <UpdateRates store={store} />}
      {parameters.length >= MIN_SEARCHABLE && (
        <input
          type="search"
          class="search"
          placeholder="Find a parameter"
          aria-label="Find a parameter"
          value={query}
          onInput={({ currentTarget }) => setQuery(currentTarget.value)}
        />
      )}
      {!parameters.length && (
        <p class="soft empty-note">
          {!hello ? "Loading…" : tableOnly ? "A table has no parameters." : "No parameters: the run has not named any."}
        </p>
      )}
      {parameters.length > 0 && !matches.length && <p class="soft empty-note">No parameter is called “{query}”.</p>}
      {groupParameters(matches).map(([group, members]) => (
        <ParameterGroup key={group} title={group || "Parameters"} members={members} store={store} />
      ))}
    </aside>
  );
}

function ParameterGroup({ title, members, store }: { title: string; members: Parameter[]; store: Store }) {
  const isOtherController = useValue(store.controller) === "other";
  const isDisconnected = useValue(store.connection) !== "open";
  return (
    <fieldset class="fields">
      <legend>{title}</legend>
      {members.map((parameter) => (
        <ParameterField
          key={parameter.name}
          parameter={parameter}
          locked={isOtherController || isDisconnected}
          change={(value) => store.change(parameter.name, value)}
        />
      ))}
    </fieldset>
  );
}

/** Group parameters, in the order in which the groups first appear. */
export function groupParameters(parameters: Parameter[]): [string, Parameter[]][] {
  const groups = new Map<string, Parameter[]>();
  for (const parameter of parameters) {
    const members = groups.get(parameter.group);
    if (members) members.push(parameter);
    else groups.set(parameter.group, [parameter]);
  }
  return [...groups];
}

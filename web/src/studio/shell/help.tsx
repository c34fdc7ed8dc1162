// The list of key bindings.
import { keyBindings, type KeyBinding } from "../key_bindings";
import { useValue } from "../signal";
import { Dialog } from "./dialog";
import { TABS } from "./tabs";

const ORDER: readonly string[] = TABS.map(({ name }) => name); // others follow, as their keys are there

/** All keys, global ones and those of each tab. */
export function Help({ close }: { close: () => void }) {
  const all = useValue(keyBindings).filter(({ description }) => description); // in a group of keys only the first has a description
  const tabs = [...new Set([...ORDER, ...all.flatMap(({ tab }) => tab ?? [])])];
  const everywhere = all.filter(({ tab }) => !tab);
  return (
    <Dialog title="Keys" close={close}>
      <KeyList title="Everywhere" list={everywhere} />
      {tabs.map((name) => (
        <KeyList key={name} title={titleOf(name)} list={all.filter(({ tab }) => tab === name)} />
      ))}
      <p class="soft">Tab goes from control to control, Enter and Space press, Escape closes what is open.</p>
    </Dialog>
  );
}

function titleOf(tab: string): string {
  return `${tab.charAt(0).toUpperCase()}${tab.slice(1)} tab`;
}

function KeyList({ title, list }: { title: string; list: readonly KeyBinding[] }) {
  if (!list.length) return null;
  return (
    <section>
      <h3>{title}</h3>
      <dl class="keys">
        {list.map(({ key, label, description }) => (
          <div key={key + description}>
            <dt>
              <kbd>{label ?? key}</kbd>
            </dt>
            <dd>{description}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

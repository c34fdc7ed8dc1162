// The list of key bindings.
import { keyBindings, type KeyBinding } from "../key_bindings";
import { useValue } from "../signal";
import { Dialog } from "./dialog";
import { TABS } from "./tabs";

/** All keys, global ones and those of each tab. */
export function Help({ close }: { close: () => void }) {
  const all = useValue(keyBindings).filter(({ description }) => description); // in a group of keys only the first has a description
  const everywhere = all.filter(({ tab }) => !tab);
  return (
    <Dialog title="Keys" close={close}>
      <KeyList title="Everywhere" list={everywhere} />
      {TABS.map(({ name, title }) => (
        <KeyList key={name} title={`${title} tab`} list={all.filter(({ tab }) => tab === name)} />
      ))}
      <p class="soft">Tab goes from control to control, Enter and Space press, Escape closes what is open.</p>
    </Dialog>
  );
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

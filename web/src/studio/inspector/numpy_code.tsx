// Python that opens the slice that is shown as a numpy array.
import type { SliceFrame } from "../messages";
import { Icon } from "../shell/icons";
import type { Store } from "../store";
import { copyText } from "../tables/csv";

/** The code with a button that copies it; where there is none, why. */
export function NumpyCode({ store, head }: { store: Store; head: SliceFrame }) {
  const { code, code_note: note } = head;
  const copy = async (): Promise<void> => {
    const isCopied = await copyText(code);
    store.notice(isCopied ? "Copied." : "The browser refused to copy; select the code instead.", isCopied ? "done" : "problem"); // prettier-ignore
  };
  return (
    <section class="tensor-code" aria-label="numpy code">
      <h3>
        In Python
        {code && (
          <button class="quiet" onClick={() => void copy()}>
            <Icon name="copy" /> Copy as numpy code
          </button>
        )}
      </h3>
      {code && (
        <pre tabIndex={0} aria-label="Code that opens this slice">
          {code}
        </pre>
      )}
      {note && <p class="soft">{note[0].toUpperCase() + note.slice(1)}.</p>}
      {code && head.block[0] * head.block[1] > 1 && (
        <p class="soft">The code gives every number, not blocks of them.</p>
      )}
    </section>
  );
}

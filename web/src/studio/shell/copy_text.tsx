// A line of text to copy, such as a command.
import { useState } from "preact/hooks";

import { Icon } from "./icons";

/** The text as code, with a button that copies it. */
export function CopyText({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => undefined, // not allowed here: the text can be selected
    );
  };
  return (
    <span class="copy-text">
      <code>{text}</code>
      {navigator.clipboard && (
        <button class="quiet" aria-label={`Copy: ${text}`} title={copied ? "Copied" : "Copy"} onClick={copy}>
          <Icon name={copied ? "check" : "copy"} />
        </button>
      )}
    </span>
  );
}

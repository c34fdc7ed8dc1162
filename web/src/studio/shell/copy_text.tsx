// A line of text to copy, such as a command.
import { useState } from "preact/hooks";

import { copyText } from "../tables/csv";
import { Icon } from "./icons";

/** The text as code, with a button that copies it. */
export function CopyText({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => setCopied(await copyText(text)); // where it may not, the text can be selected
  return (
    <span class="copy-text">
      <code>{text}</code>
      <button class="quiet" aria-label={`Copy: ${text}`} title={copied ? "Copied" : "Copy"} onClick={() => void copy()}>
        <Icon name={copied ? "check" : "copy"} />
      </button>
    </span>
  );
}

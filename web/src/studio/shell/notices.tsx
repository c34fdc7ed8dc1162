// Notices that disappear by themselves: problems and confirmations. They stand beside the status, never over a picture.
import { useEffect } from "preact/hooks";

import { useValue, type Notice, type Store } from "../store";
import { Icon } from "./icons";

const NOTICE_MS = 9000;

/** Current notices, newest last; announced to screen readers. */
export function Notices({ store }: { store: Store }) {
  const notices = useValue(store.notices);
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.map((notice) => (
        <NoticeLine key={notice.id} notice={notice} close={() => store.dismiss(notice.id)} />
      ))}
    </div>
  );
}

function NoticeLine({ notice, close }: { notice: Notice; close: () => void }) {
  useEffect(() => {
    const timer = window.setTimeout(close, NOTICE_MS);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <p class={`notice ${notice.tone}`}>
      <span>{notice.text}</span>
      <button class="quiet" aria-label={`Dismiss: ${notice.text}`} onClick={close}>
        <Icon name="close" />
      </button>
    </p>
  );
}

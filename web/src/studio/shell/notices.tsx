// Notices that disappear by themselves: problems and confirmations. They stand beside the status, never over a picture.
import { useEffect } from "preact/hooks";

import { useValue, type Notice, type Store } from "../store";
import { Icon } from "./icons";

const NOTICE_MS = 9000;
const UNDO_MS = 30000; // of one whose doing can be undone

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
    const timer = window.setTimeout(close, notice.undo ? UNDO_MS : NOTICE_MS);
    return () => window.clearTimeout(timer);
  }, []);
  const undo = (): void => {
    close();
    notice.undo?.();
  };
  return (
    <p class={`notice ${notice.tone}`}>
      <span>{notice.text}</span>
      {notice.undo && <button onClick={undo}>Undo</button>}
      <button class="quiet" aria-label={`Dismiss: ${notice.text}`} onClick={close}>
        <Icon name="close" />
      </button>
    </p>
  );
}

// What stands across the page when there is no connection.
import { useValue, type Store } from "../store";

/** Nothing while connected. */
export function Banner({ store }: { store: Store }) {
  const connection = useValue(store.connection);
  const refused = useValue(store.refused);
  const reason = useValue(store.reason);
  if (connection !== "lost") return null;
  if (refused) {
    return (
      <div class="banner bad" role="alert">
        <p>
          <strong>This page is not let in any more.</strong> The studio was started again, with a new key. Training goes on.
          Open the address that torcheer printed last: it has the new key in it.
        </p>
      </div>
    );
  }
  return (
    <div class="banner" role="alert">
      <p>
        <strong>Connection lost{reason && `: ${reason}`}.</strong> Training goes on; what you see is as it was. Trying again…
      </p>
      <button onClick={() => store.retry()}>Try now</button>
    </div>
  );
}

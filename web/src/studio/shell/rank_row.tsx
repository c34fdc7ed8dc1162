// The row of ranks: of a run of several processes, how long each takes for a step, who is slow, whose weights differ.
import type { RankSeen } from "../messages";
import { useValue, type Store } from "../store";

/** A field for each rank; nothing for one process. */
export function RankRow({ store }: { store: Store }) {
  const ranks = useValue(store.ranks);
  if (!ranks) return null;
  const longest = Math.max(...ranks.ranks.map(({ step_secs }) => step_secs ?? 0));
  const last = Math.max(...ranks.ranks.map(({ step }) => step));
  const missing = ranks.of - ranks.ranks.length;
  return (
    <section class="ranks" aria-label="Ranks">
      <h2 class="soft">Ranks</h2>
      <ul>
        {ranks.ranks.map((rank) => (
          <Rank key={rank.rank} rank={rank} longest={longest} last={last} />
        ))}
      </ul>
      {missing > 0 && (
        <span class="soft" title="tl.watch(…, ranks='all') logs every rank">
          {missing} of {ranks.of} without a log
        </span>
      )}
    </section>
  );
}

function Rank({ rank, longest, last }: { rank: RankSeen; longest: number; last: number }) {
  const { step_secs, forward_secs, wait_secs } = rank;
  // Ranks that wait for each other take equally long for a step: the bar is what this one needs before it meets them.
  const own = (forward_secs ?? 0) + (wait_secs ?? 0);
  const notes = [rank.differs ? "weights differ" : "", rank.is_slow ? "slow" : ""].filter(Boolean);
  const reached = rank.step < 0 ? "no step yet" : `at step ${rank.step}`;
  const behind = rank.step < last ? reached : "";
  const details = [
    `rank ${rank.rank}: ${reached}`,
    step_secs === null ? "" : `${duration(step_secs)} a step`,
    forward_secs === null ? "" : `${duration(forward_secs)} of it forward`,
    wait_secs === null ? "" : `${duration(wait_secs)} between steps`,
    rank.is_slow ? "the others wait for it" : "",
    rank.differs,
  ];
  const tone = rank.differs ? "bad" : rank.is_slow ? "slow" : "";
  return (
    <li class={`rank ${tone}`} title={details.filter(Boolean).join("\n")}>
      <b>{rank.rank}</b>
      <span class="time">{step_secs === null ? "–" : duration(step_secs)}</span>
      <span class="gauge" aria-hidden="true">
        <span style={{ width: `${longest ? Math.min(100, Math.round((100 * own) / longest)) : 0}%` }} />
      </span>
      {(notes.length > 0 || behind) && <span class="note">{[...notes, behind].filter(Boolean).join(", ")}</span>}
    </li>
  );
}

function duration(secs: number): string {
  if (secs >= 1) return `${secs.toPrecision(3)} s`;
  return secs >= 0.001 ? `${(secs * 1000).toPrecision(3)} ms` : `${(secs * 1e6).toPrecision(3)} µs`;
}

"""What the ranks of a session decide together between two rounds, where no step is half done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from torcheer.training.loop.events import Alert, Event
from torcheer.training.parallel.hang_watch import watch_each_other
from torcheer.training.parallel.session_ranks import Decision, SessionRanks

if TYPE_CHECKING:
    from torcheer.training.session import Session

Work = Callable[[], Iterator[Event]]


class Agreement:
    """Signals, time limits, saves and a studio's requests reach single ranks; all act on them at the same boundary."""

    def __init__(self, session: Session, ranks: SessionRanks) -> None:
        self._session, self._ranks = session, ranks
        watch_each_other()
        # Where ranks split layers, gradients are not those of all; on a GPU, reading them would wait for it.
        ranks.begin_votes(carried=session.device.type == "cpu" and ranks.share.count == ranks.count)
        self._decision = Decision(is_stop=False, is_work=False)

    def vote(self, is_due: bool) -> bool:
        """Say what this rank wants; return whether all of them do something at this boundary."""
        is_main = self._ranks.is_main
        self._decision = self._ranks.vote(stops=bool(self._session.stop_reason), works=is_main and is_due)
        return any(self._decision)

    def decide(
        self, work: Work, is_time: Callable[[], bool], *, at_step: bool
    ) -> Generator[Event, None, tuple[bool, str]]:
        """Do what rank 0 has to do; return whether all save now, as that is due, and why all of them stop, if they do.

        at_step: whether all of them save at this step anyway.
        """
        decision, self._decision = self._decision, Decision(is_stop=False, is_work=False)
        if decision.is_work:
            yield from self._work_together(work)
        if not any(decision) and not at_step:
            return False, ""
        is_due = bool(self._ranks.from_main(is_time()))
        return is_due, self._stop_reason()

    def begin_epoch(self, work: Work) -> Generator[Event, None, str]:
        """Do what rank 0 has to do before an epoch; return why all of them stop, if they do."""
        yield from self._work_together(work)
        return self._stop_reason()

    def _work_together(self, work: Work) -> Iterator[Event]:
        """Let rank 0 handle its requests; the others make the same changes."""
        session, changes = self._session, self._session.changes
        if not self._ranks.is_main:
            yield from map(Alert, self._repeat(self._ranks.from_main()))
            return
        applied = changes.applied
        yield from work()
        made = [[row[2], row[4]] for row in changes.rows[applied:]]
        self._ranks.from_main({"changes": made, "stop": session.stop_reason})

    def _repeat(self, told: dict[str, Any]) -> Iterator[str]:
        from torcheer.training.control.session_form import change_parameter  # only where something was changed

        for name, value in told["changes"]:
            if not name.startswith("watch.") or self._session.options.watch is not None:
                change_parameter(self._session, name, value)
        self._session.stop_reason = self._session.stop_reason or told["stop"]
        return iter(())

    def end_epoch(self, is_done: bool, is_saved: bool) -> tuple[bool, bool, str]:
        """Return whether the stage is done and a checkpoint worth it, as rank 0 finds, and why all stop, if they do."""
        is_done, is_saved = self._ranks.from_main([is_done, is_saved])
        return is_done, is_saved, self._stop_reason()

    def _stop_reason(self) -> str:
        """Return the reason of the first rank that has one; a signal that comes meanwhile is of the next boundary."""
        agreed: str = next(filter(None, self._ranks.exchange(self._session.stop_reason)), "")
        self._session.stop_reason = agreed or self._session.stop_reason
        return agreed

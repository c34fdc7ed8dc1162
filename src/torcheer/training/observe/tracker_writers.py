"""Where numbers go besides the CSV files: TensorBoard and W&B, where the options name them.

A writer that fails is reported once and left out from then on; training does not end because a chart did.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from torcheer.config import nearest
from torcheer.errors import BadArgument
from torcheer.training.loop.events import Alert, CheckpointSaved, EpochDone, Event, StepDone

if TYPE_CHECKING:
    from torcheer.training.session import Session

WAITING = 256  # step values that may wait to be looked at: waiting for each would make training wait


class Writer(Protocol):
    """Somewhere that numbers go."""

    def write(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `<run>/tensorboard`; numbers stand at the step they were made at."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What a killed run wrote behind the checkpoint comes again: hide it. The checkpoint's own step does not.
        self._writer: Any = SummaryWriter(folder / "tensorboard", purge_step=step + 1 if step else None)

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(re.sub(r"[^\w./-]", "_", name), value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of W&B; a session that goes on continues it."""

    def __init__(self, folder: Path, step: int) -> None:
        import wandb  # type: ignore[import-not-found,unused-ignore]

        file, spec = folder / "wandb" / "id", folder / "spec.json"
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            file.write_text(uuid.uuid4().hex)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "torcheer"),
            name=folder.resolve().name,
            id=file.read_text(),
            resume="allow",
            mode=None if "WANDB_MODE" in os.environ or _is_signed_in(wandb) else "offline",
            dir=folder,
            config=json.loads(spec.read_text()) if spec.exists() else {},
            settings=wandb.Settings(console="off"),  # the screen is ours
        )

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def _is_signed_in(wandb: Any) -> bool:
    """Whether W&B knows who this is; it would ask in the middle of the screen, so that offline is better."""
    try:
        return bool(wandb.login(prompt=False))
    except TypeError:  # a version that cannot help asking
        return True


# name in the options -> (the package it needs, what writes)
WRITERS: dict[str, tuple[str, Any]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
}


def check_writers(session: Session) -> None:
    """Say what is missing before anything is trained."""
    for name in session.options.writers:
        if name not in WRITERS:
            raise BadArgument(f"there is no writer {name!r}; there are {', '.join(WRITERS)}.{nearest(name, WRITERS)}")
        package = WRITERS[name][0]
        if find_spec(package) is None:
            raise BadArgument(f"the writer {name!r} needs {package}, which is not installed: pip install {package}")
        if session.directory is None:
            raise BadArgument(f"the writer {name!r} needs a directory to write to: Session(…, directory=…)")


def noting(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    """The same events, their numbers written on the way."""
    if not session.options.writers:
        return events
    check_writers(session)
    return _noting(session, events)


def _noting(session: Session, events: Iterator[Event]) -> Iterator[Event]:
    writers: dict[str, Writer] | None = None
    numbers = _Numbers(session)
    try:
        for event in events:
            yield event
            if writers is None:  # the session stands where it goes on from
                writers = {}
                yield from _open(session, writers)
            for values, step in numbers.of(event):
                yield from _write(writers, values, step)
    finally:
        for values, step in numbers.rest():
            list(_write(writers or {}, values, step))
        for writer in (writers or {}).values():
            writer.close()


def _open(session: Session, writers: dict[str, Writer]) -> Iterator[Alert]:
    for name in session.options.writers:
        try:
            writers[name] = WRITERS[name][1](session.directory, session.place.step)
        except Exception as error:  # whatever a package of others does
            yield _alert(name, error)


def _write(writers: dict[str, Writer], values: Mapping[str, float], step: int) -> Iterator[Alert]:
    for name, writer in list(writers.items()):
        try:
            writer.write(values, step)
        except Exception as error:
            del writers[name]
            yield _alert(name, error)


def _alert(name: str, error: Exception) -> Alert:
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    return Alert(f"{name} is left out from here on, training goes on without it: {said}")


class _Numbers:
    """The numbers in events: an epoch's columns, and the loss of every n-th step, looked at later."""

    def __init__(self, session: Session) -> None:
        self._session, self._every = session, session.options.steps_csv
        self._waiting: list[tuple[int, str, Any]] = []
        self._last = session.place.step

    def of(self, event: Event) -> Iterator[tuple[Mapping[str, float], int]]:
        if type(event) is StepDone:
            if self._every and event.step != self._last and event.step % self._every == 0:
                self._last = event.step
                self._waiting.append((event.step, f"steps/{event.pipeline} loss", event.loss))
                if len(self._waiting) >= WAITING:
                    yield from self.rest()
        elif isinstance(event, EpochDone | CheckpointSaved):
            yield from self.rest()
            if isinstance(event, EpochDone):
                yield {**event.values, "epoch": event.epoch}, self._session.place.step

    def rest(self) -> Iterator[tuple[Mapping[str, float], int]]:
        """What waits; one look for all of it."""
        if self._waiting:
            losses = torch.stack([loss.reshape(()).float() for _, _, loss in self._waiting]).tolist()
            found = [({name: loss}, step) for (step, name, _), loss in zip(self._waiting, losses)]
            self._waiting.clear()
            yield from found

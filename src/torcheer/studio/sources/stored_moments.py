"""States on disk: entries of an archive by moment, read and checked when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from torcheer.archive import Archive, Entry
from torcheer.archive.verification import open_intact
from torcheer.control.loop_messages import Moment
from torcheer.errors import TorcheerError
from torcheer.network.network_records import Layer, Network, full_name
from torcheer.studio.files.checkpoint_weights import Checkpoints
from torcheer.studio.sources.moment_queries import Reasons, RecordedValue, Values
from torcheer.studio.tensors.numpy_code import Opening
from torcheer.vocabulary.variables import PAGE_NAMES

Places = dict[tuple[str, str], Entry]  # by layer or projection, and variable

_MOST_MOMENTS: Final = 2000
_VARIABLES: Final = PAGE_NAMES | {"value": PAGE_NAMES["output"], "gradient": PAGE_NAMES["grad"]}  # those of a history


class StoredMoments:
    """Moments and where their values lie; a damaged value is reported once, and missing from then on."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.archive: Archive | None = None
        self.moments: list[Moment] = []
        self.places: dict[int, Places] = {}
        self.reasons: dict[int, Reasons] = {}
        self._report = report

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A value, checked when it is first read; None if there is none."""
        entry = self.places.get(moment, {}).get((name, variable))
        if entry is None or self.archive is None:
            return None
        try:
            return RecordedValue(entry.item, self.archive.numbers(entry))
        except (TorcheerError, OSError, ValueError) as error:
            del self.places[moment][name, variable]
            self._report(str(error))
            return None

    def names(self, moment: int) -> list[tuple[str, str]]:
        """The layer or projection, and variable, of each value of a moment."""
        return list(self.places.get(moment, {}))

    def values(self, moment: int) -> Values:
        """All values of a moment."""
        values = {key: self.value(moment, *key) for key in self.names(moment)}
        return {key: value for key, value in values.items() if value is not None}

    def why(self, moment: int, layer: str, variable: str) -> str:
        """The recorded reason for a missing value."""
        return self.reasons.get(moment, {}).get((layer, variable), "")

    def parameter_names(self, moment: int) -> list[str]:
        """The names of the parameters and buffers that have a value at a moment."""
        return [name for name, variable in self.places.get(moment, {}) if variable == "Wt"]

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """Open the entry of the archive."""
        entry = self.places.get(moment, {}).get((name, variable))
        if entry is None or self.archive is None:
            return Opening(note="it is in no file")
        find = f"archive.find({entry.layer!r}, {entry.variable!r}, step={entry.step!r}, item={entry.item!r})"
        lines = ("import torcheer as tl", f"archive = tl.load({str(self.archive.path.resolve())!r})")
        return Opening(lines, f"archive.numbers({find})")

    def frozen(self) -> StoredMoments:
        """Return itself: what is on disk stays."""
        return self


class CapturedMoments(StoredMoments):
    """The captures of a run, followed while they are written, with the weights of its checkpoints.

    Without captures, the checkpoints of a described network are the moments.
    """

    def __init__(self, folder: Path, checkpoints: Checkpoints, report: Callable[[str], None]) -> None:
        super().__init__(report)
        self.folder, self.checkpoints = folder, checkpoints
        self.projections: list[str] = []  # that have weights
        self._identity = (0, 0)  # of the archive's file: another one is there once another run has begun
        self._first = self._seen = 0  # id of the first moment; number of frames read

    def read(self, network: Network | None) -> bool:
        """Read the frames that are new; `network` tells the full names of its layers. True if there were some."""
        if (identity := _identity(self.folder)) != self._identity or self.archive is None:
            self._identity = identity
            self._first = max((moment.id for moment in self.moments), default=-1) + 1
            self.moments, self.places, self._seen = [], {}, 0
        self.archive = open_intact(self.folder, lost := list[str]())
        for text in lost[:20]:
            self._report(text)
        frames = list(enumerate(self.archive.frames))[self._seen :]
        self._seen, self.moments = len(self.archive.frames), list(self.moments)
        for position, frame in frames[:: -(-len(frames) // _MOST_MOMENTS)] if frames else []:
            places = {
                (full_name(entry.layer, network), _VARIABLES.get(entry.variable, entry.variable)): entry
                for entry in frame["entries"]
            }
            if places:
                number = self._first + position
                self.moments.append(Moment(number, frame["step"] or 0, _counters(frame)))
                self.places[number] = places
        return bool(frames)

    def read_again(self) -> None:
        """Read everything again with the next `read`: layers may have other names now."""
        self._identity = (0, 0)

    def read_checkpoints(self, are_moments: bool) -> bool:
        """List the checkpoints; without captures their steps may be the moments, and it returns True."""
        self.checkpoints.refresh()
        if self.archive is not None or not are_moments:
            return False
        kept = [moment for moment in self.moments if moment.step in self.checkpoints.steps]
        last = max((moment.id for moment in self.moments), default=-1)
        new_steps = [step for step in self.checkpoints.steps if all(moment.step != step for moment in kept)]
        self.moments = [*kept, *(Moment(last + position, step) for position, step in enumerate(new_steps, 1))]
        return True

    def value(self, moment: int, name: str, variable: str) -> RecordedValue | None:
        """A captured value, or weights of a checkpoint."""
        if variable != "Wt":
            return super().value(moment, name, variable)
        weights = self.checkpoints.weights(self._step(moment), name)
        return None if weights is None else RecordedValue(-1, weights)

    def names(self, moment: int) -> list[tuple[str, str]]:
        """The layer or projection, and variable, of each value of a moment."""
        return [*super().names(moment), *((name, "Wt") for name in self.projections)]

    def parameter_names(self, moment: int) -> list[str]:
        """The names in the checkpoint of that time."""
        return self.checkpoints.names(self._step(moment))

    def _step(self, moment: int) -> int:
        return next((stored.step for stored in self.moments if stored.id == moment), -1)

    def why(self, moment: int, layer: str, variable: str) -> str:
        """A run only has what was captured, and the weights of its checkpoints."""
        if variable == "Wt":
            return "no checkpoint so far has it: `checkpoint_steps` in the config says how often one is saved"
        if variable == "WtGrad":
            return "a run keeps no gradients of parameters: tl.watch(model, what='weight_grad') logs their statistics"
        return "it was not captured: `capture` in the config keeps values; of a live page, a recording (Save) does"

    def opening(self, moment: int, name: str, variable: str) -> Opening:
        """Open the capture, or the checkpoint."""
        if variable != "Wt":
            return super().opening(moment, name, variable)
        place = self.checkpoints.place(self._step(moment), name)
        if place is None:
            return Opening(note="it is in no file")
        lines = ("import torcheer as tl", f"file = tl.load({str(place[0].resolve())!r})")
        return Opening(lines, f"file[{place[1]!r}].numpy()")

    @property
    def batch(self) -> int:
        """The batch size; 0 without captures."""
        ends = [self.places.get(moment.id, {}) for moment in (*self.moments[:1], *self.moments[-1:])]
        return max((_batch(places) for places in ends if places), default=0)

    def layers(self) -> tuple[dict[str, Layer], list[str]]:
        """The captured layers by name, in the order of capture, and the variables."""
        layers: dict[str, Layer] = {}
        variables: dict[str, None] = {}
        for places in self.places.values():
            batch = _batch(places)
            for (name, variable), entry in places.items():
                if name not in layers and entry.shape:  # a scalar is no layer
                    shape = tuple(entry.shape[1:] if entry.shape[0] == batch else entry.shape)
                    layers[name] = Layer(name, shape, view="maps" if len(shape) > 3 else "auto")
                variables[variable] = None
        return layers, list(variables)


def _identity(folder: Path) -> tuple[int, int]:
    """The inode and time of an archive's file: they differ for another archive at the same path."""
    try:
        status = (folder / "archive.json").stat()
    except OSError:
        return (0, 0)
    return status.st_ino, status.st_mtime_ns


def _counters(frame: dict[str, Any]) -> dict[str, Any]:
    about = frame["about"] if isinstance(frame.get("about"), dict) else {}
    counters: dict[str, Any] = {}
    if isinstance(about.get("epoch"), int):
        counters["Epoch"] = about["epoch"]
    if isinstance(about.get("pipeline"), str):
        counters["Name"] = about["pipeline"]
    return counters


def _batch(places: Places) -> int:
    """The batch size: the most common first length."""
    lengths = Counter(entry.shape[0] for entry in places.values() if entry.shape)
    return int(lengths.most_common(1)[0][0]) if lengths else -1

"""Saving: the options of `tl.Save`, and the release of values that they do not ask for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.recorder import Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.torch_state import version_of
from torcheer.capture.values.copy_on_write import CHANGED, FREED
from torcheer.capture.values.memory_layout import is_freed
from torcheer.capture.values.value_copies import copy_of, graph_copy
from torcheer.capture.values.value_forms import has_form, in_form
from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass
from torcheer.selection import Layers, keys_of
from torcheer.tap.device_copies import READY


@dataclass(frozen=True)
class Save(metaclass=PublicClass):
    """Which values to save, and in which form: `layers_to_save=tl.Save("features.*", dtype=torch.float16)`.

    - `layers`: one or a list, in any form that `layers_to_save` takes.
    - `device`, `dtype`: move values there, store them in this type.
    - `transform`: a function of the value; what it returns is stored instead.
    - `detach`: store values without their autograd graph.
    - `stop_early`: end the pass as soon as all of `layers` are saved; the history holds what ran until then.
    - `guard`: "write" copies a value when torch is about to write to it, "clone" copies every value at once.
    """

    layers: Layers = "all"  # which layers, in any form of `torcheer.selection`
    device: Any = None  # move values there
    dtype: torch.dtype | None = None  # store values in this type
    transform: Callable[[Tensor], Tensor] | None = None  # store what this returns instead
    detach: bool = False  # without the autograd graph
    stop_early: bool = False  # stop the pass once all requested layers are saved
    guard: str = "write"  # "write": copy when torch is about to write; "clone": copy at once

    def __post_init__(self) -> None:
        if self.guard not in ("write", "clone"):
            raise BadArgument(
                f"guard={self.guard!r}: 'write' copies a value when torch writes to it, 'clone' copies at once"
            )
        if self.layers not in ("all", "none"):
            object.__setattr__(self, "layers", list(keys_of(self.layers, "layers_to_save")))
        if self.stop_early and isinstance(self.layers, str):
            raise BadArgument("stop_early needs a list of layers to stop after")

    @property
    def is_plain(self) -> bool:
        """Whether everything is saved as it ran, the recorder's default."""
        return self.layers == "all" and not self.alters and not self.detach and self.guard == "write"

    @property
    def alters(self) -> bool:
        """Whether stored values differ from what ran."""
        return self.device is not None or self.dtype is not None or self.transform is not None


class StopEarly(BaseException):
    """Raised once all requested layers are saved.

    Not an Exception: the model's own handlers must not catch it.
    """


class KeptValues:
    """The values asked for, each in the requested form."""

    def __init__(self, save: Save, recorder: Recorder) -> None:
        assert recorder.saved is not None
        self.save = save
        self.recorder = recorder
        self._saved = recorder.saved
        self._by_reference = not save.detach and save.guard == "write"
        self._kept: set[int] = set()
        self._copied: deque[int] = deque()  # refs of recent values that were copied, as torch wrote to them

    def keep_new(self, ref: int, tensor: Tensor) -> bool:
        """Save a value that was just computed by reference; False if it must be copied or converted."""
        if ref in self._kept:
            return True
        if not self._by_reference or (self.save.alters and not has_form(self.save, tensor)):
            return False
        self._kept.add(ref)
        self._saved[ref] = (tensor, version_of(tensor))
        return True

    def keep(self, ref: int, tensor: Tensor) -> None:
        """Save one value, in the requested form."""
        memory, save = self.recorder.memory, self.save
        if ref in self._kept:
            return
        self._kept.add(ref)
        copied = memory.pop_preserved(ref)  # its memory was written or exposed before the value was requested
        if ref in memory.lost:
            return
        if copied is None and (is_freed(tensor) or memory.changed(tensor, ref)):
            memory.lost[ref] = FREED if is_freed(tensor) else CHANGED
            return
        tensor = tensor if copied is None else copied
        if save.alters and not has_form(save, tensor):
            value, event = in_form(save, tensor)
            memory.copies[ref] = value
            is_moved = save.transform is None and value.dtype == tensor.dtype and not value.is_meta
            self.recorder.converted[ref] = tensor.device if is_moved else None
            if event is not READY:
                self.recorder.arrivals[ref] = event
        elif copied is not None:
            memory.copies[ref] = copied.detach() if save.detach else copied
        elif save.guard == "clone" or id(tensor) in memory.exposed:
            memory.copies[ref] = copy_of(tensor) if save.detach else graph_copy(tensor)
        else:
            self._saved[ref] = (tensor.detach() if save.detach else tensor, version_of(tensor))

    def keep_edited(self, ref: int, edited: Tensor) -> None:
        """Save the edited version of a value in the place of the value, if that is saved."""
        if ref in self._kept:
            self._kept.discard(ref)
            self._saved.pop(ref, None)
            self.recorder.memory.drop(ref)
            self.recorder.converted.pop(ref, None)
            self.recorder.arrivals.pop(ref, None)
            self.keep(ref, edited)

    def hold_recent(self, window: int) -> None:
        """Hold the results of the newest `window` rows: a position from the end may turn out to be one of theirs."""
        self.recorder.recent = deque(maxlen=window)
        self.recorder.holds = self._holds

    def _holds(self, ref: int) -> bool:
        """Whether a value that is about to be overwritten is recent, so that a copy is made and known here."""
        assert self.recorder.recent is not None
        oldest = self.recorder.count - (self.recorder.recent.maxlen or 0)
        while self._copied and self._copied[0] >> SLOT_BITS < oldest:
            self._let_go(self._copied.popleft())
        if ref >> SLOT_BITS < oldest:
            return False
        self._copied.append(ref)
        return True

    def finish(self, positions: set[int]) -> None:
        """Keep those of the recent values whose positions are wanted, from the end, and let go of the others."""
        recent, self.recorder.recent, self.recorder.holds = self.recorder.recent, None, None
        for node, out in recent or ():
            if node - self.recorder.count in positions:
                for ref, tensor in enumerate(leaves(out), node << SLOT_BITS):
                    self.keep(ref, tensor)
        while self._copied:
            self._let_go(self._copied.popleft())

    def _let_go(self, ref: int) -> None:
        if ref not in self._kept:
            self._saved.pop(ref, None)
            self.recorder.memory.drop(ref)


def release_others(recorder: Recorder, wanted: set[int]) -> None:
    """Let go of the saved values of other rows than these."""
    memory = recorder.memory
    for values in (recorder.saved or {}, memory.copies, memory.deferred):
        for ref in [ref for ref in values if ref >= 0 and ref >> SLOT_BITS not in wanted]:
            del values[ref]

"""Finds a model's network: by recording its user's next call, by an extra pass, or by hooks from outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from torch import nn

from torcheer.capture import recording
from torcheer.history import ModelHistory
from torcheer.host.follow.model_pass import ModelPass, RecordedCall, can_record, pass_of, pass_of_models, run_once
from torcheer.host.follow.pass_observer import SEEN_BY_HOOKS, PassObserver, pass_of_weights
from torcheer.models import unwrapped
from torcheer.network.history_network import PassDescription, describe_pass
from torcheer.network.network_records import Network

COMPILED_PASS: Final = "found by an extra pass of the eager program, as no hook sees inside compiled code"
HOW_FOUND: Final = (SEEN_BY_HOOKS, COMPILED_PASS)
GUESSED: Final = "guessed from the weights, in their order, as no pass of the model can be seen"


class NetworkFinder:
    """Calls `found` with the network of a pass, and `note` with sentences about what cannot be found.

    - `roots`: the models that a pass calls: the model itself, or those of a `ModuleDict`
    - `hidden`, `compiled`: modules where no hook is called, and those of them whose eager program can be run
    """

    def __init__(
        self, model: nn.Module, roots: Sequence[nn.Module], hidden: Sequence[str], compiled: Sequence[str],
        found: Callable[[PassDescription, ModelPass], None], note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._model, self._roots, self._found, self._note = model, list(roots), found, note
        self._hidden, self._has_compiled = (*hidden, *compiled), bool(compiled)
        self._may_record = not self._hidden and all(map(can_record, self._roots))
        self._recorded_call: RecordedCall | None = None  # waits for the model's next call
        self._observer: PassObserver | None = None
        self._process = os.getpid()

    @property
    def is_observing(self) -> bool:
        """True while hooks observe a pass."""
        return self._observer is not None

    def run_once(self, inputs: Any, keywords: Any = None) -> None:
        """Run an extra pass, which leaves no trace in the model."""
        self._use(run_once(self._model, inputs, keywords))

    def record_next_call(self) -> bool:
        """Record the model's next call; False if that is not possible."""
        may = self._may_record and self._roots == [self._model] and self._process == os.getpid()
        if self._recorded_call is None and may and can_record(self._model):
            self._recorded_call = RecordedCall(unwrapped(self._model), self._end_recorded_call)
        return self._recorded_call is not None

    def _end_recorded_call(self, history: ModelHistory) -> bool:
        """Use a recorded call; False to record the next one, after an empty batch."""
        if self._process != os.getpid():
            return True
        is_used = self._try_to_use(lambda: pass_of(history))
        self._recorded_call = None if is_used else self._recorded_call
        return is_used

    @contextmanager
    def record_pass(self) -> Iterator[None]:
        """Find the network from what runs inside the block: of one model from its call, of several from all of it."""
        if self._may_record and len(self._roots) > 1:
            with recording(self._model, layers_to_save="none") as history:
                yield
            self._try_to_use(lambda: pass_of_models(history, self._model))
            return
        self.record_next_call()
        self.observe()
        try:
            yield
        finally:
            self.end_observation()

    def observe(self, arguments: Any = None, keywords: Any = None) -> None:
        """Observe the next pass, or the one that begins with these arguments, by hooks; not if a call is recorded."""
        if self._observer is not None or self._recorded_call is not None or self._process != os.getpid():
            return
        try:
            self._observer = PassObserver(self._model, self._hidden, self._roots if arguments is None else ())
            self._observer.begin(arguments, keywords)
        except Exception as error:
            self._note(f"the model cannot be looked at: {type(error).__name__}: {error}")

    def end_observation(self) -> None:
        """End the observed pass."""
        observer, self._observer = self._observer, None
        if observer is None:
            return
        observer.end()
        model_pass = observer.model_pass
        if self._has_compiled or (self._hidden and not observer.module_calls):
            self._try_to_use(lambda: run_once(self._model, *observer.inputs), COMPILED_PASS)
        elif model_pass.outputs:
            self._try_to_use(lambda: model_pass, SEEN_BY_HOOKS)

    def guess(self) -> Network:
        """The modules with weights, one after the other, where no pass can be seen."""
        network = describe_pass(pass_of_weights(self._model).ops, self._title).network
        return replace(network, notes=(GUESSED,))

    @property
    def _title(self) -> str:
        return type(unwrapped(self._model)).__name__

    def _try_to_use(self, make: Callable[[], ModelPass], note: str = "") -> bool:
        """Use a pass; False if it tells nothing, as an empty batch does."""
        try:
            model_pass = make()
            if not model_pass.is_empty:
                self._use(model_pass, note)
            return not model_pass.is_empty
        except Exception as error:
            self._note(f"the network cannot be described: {type(error).__name__}: {error}")
            self._may_record = False  # the next time hooks try it
            return True

    def _use(self, model_pass: ModelPass, note: str = "") -> None:
        description = describe_pass(model_pass.ops, self._title)
        if note:
            network = description.network
            description.network = replace(network, notes=(*network.notes, note))
        self._found(description, model_pass)

    def close(self) -> None:
        """Leave the model as it was."""
        self.end_observation()
        if self._recorded_call is not None:
            self._recorded_call.end()

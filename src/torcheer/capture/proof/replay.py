"""Replay: run each operation again from its recorded parents and compare bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torcheer.capture.ambient_state import preserve_random_state
from torcheer.capture.forward_pass import CaptureSettings, check_model, run_forward_pass
from torcheer.capture.proof.bit_equality import difference_text, equal_values, has_numbers, is_lazy, largest_difference
from torcheer.capture.proof.edge_proof import dead_edges, forget_noise
from torcheer.capture.proof.rerun import Run, as_it_ran, memory_filled, rerun_row, tangent_of
from torcheer.capture.record.recorder import WIDTH, OpRow, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.torch_state import REPLAY, exact_modes, is_forward_ad_on, require
from torcheer.errors import CannotReplay, ValueUnavailable
from torcheer.history.numbers.unwritten_memory import UNINITIALISED
from torcheer.tap.compiled.preserved_state import PreservedState

CANNOT = "cannot be judged"  # not by anybody: it must not run again, or gives another result each time
MISSING = "not judged"  # here: a value is missing


@dataclass(slots=True)
class Validation:
    """The report of a replay; true if it held: nothing failed, and all that can be replayed was."""

    model: str
    ops: int
    # index -> "equal", "unequal: …", "skipped: …" (nothing to compare), "cannot be judged: …" or "not judged: …"
    verdicts: dict[int, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    dead_edges: list[str] = field(default_factory=list)  # parents that turned out not to matter

    def __bool__(self) -> bool:
        return self.verdict == "held"

    @property
    def verdict(self) -> str:
        """ "held", "FAILED", or "not judged": nothing failed, but values that a replay needs are missing."""
        if self.failures or self.dead_edges:
            return "FAILED"
        return "held" if self.equal and not self._select(MISSING) else "not judged"

    @property
    def equal(self) -> int:
        """Number of operations that replayed bit for bit."""
        return sum(verdict == "equal" for verdict in self.verdicts.values())

    @property
    def failures(self) -> dict[int, str]:
        """Operations whose replay gave another result."""
        return self._select("unequal")

    @property
    def skipped(self) -> dict[int, str]:
        """Operations with nothing to compare, with the reason: inputs, uninitialised memory."""
        return self._select("skipped")

    @property
    def unjudged(self) -> dict[int, str]:
        """Operations that were not judged, with the reason.

        Their values were not saved as they ran, they must not run again, or give another result each time.
        """
        return self._select(CANNOT) | self._select(MISSING)

    def _select(self, word: str) -> dict[int, str]:
        return {index: verdict for index, verdict in self.verdicts.items() if verdict.startswith(word)}

    def __str__(self) -> str:
        failed = len(self.failures) + len(self.dead_edges)
        counts = f"{failed} failed, {len(self.unjudged)} not judged, {len(self.skipped)} skipped"
        lines = [f"Validation of {self.model}: {self.verdict}{self._coverage()}"]
        lines.append(f"\t{self.equal}/{self.ops} operations replay bit for bit from their recorded parents, {counts}")
        for word, phrase in ((MISSING, "not judged:"), (CANNOT, "cannot be judged:"), ("skipped", "skipped:")):
            for reason, count in Counter(text.partition(": ")[2] for text in self._select(word).values()).items():
                lines.append(f"\t{count} {phrase} {reason}")
        lines += [f"\t{self.labels.get(index, index)} {verdict}" for index, verdict in self.failures.items()]
        lines += [f"\tparent that does not matter: {edge}" for edge in self.dead_edges]
        return "\n".join(lines)

    def _coverage(self) -> str:
        """Return how much was judged, where that is not all."""
        judged, judgeable = self.equal + len(self.failures), self.ops - len(self.skipped)
        if not judged:
            return ", nothing could be replayed"
        return f", {judged} of {judgeable} operations could be replayed" if judged < judgeable else ""

    __repr__ = __str__


def validate_history(history: Any, *, perturb: bool = True) -> Validation:
    """Replay every operation of a live history and return the report, true if everything held."""
    recorder = getattr(history.trace, "recorder", None)
    if not isinstance(recorder, Recorder):
        raise CannotReplay(
            "this history was loaded from a file, explains a backward pass, or was recorded with structure=False; "
            "replay needs the operations of a live model: capture it again"
        )
    require(REPLAY)
    recorder.compute_deferred()
    report = Validation(history.trace.info().model, recorder.count)
    with ExitStack() as stack:
        stack.callback(forget_noise)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(preserve_random_state())
        stack.enter_context(exact_modes((), ()))  # no user mode sees the replay
        stack.enter_context(recorder.backends.active())
        replay = Replay(recorder)
        if replay.is_forward_mode and not is_forward_ad_on():
            stack.enter_context(forward_ad.dual_level())
        for node in range(recorder.count):
            report.verdicts[node], run = replay.judge(node)
            if perturb and run is not None:
                report.dead_edges += dead_edges(recorder, node, run)
    for node in (*report.failures, *report.skipped, *report.unjudged):
        report.labels[node] = history[node].label
    return report


def validate_model(
    model: torch.nn.Module, inputs: Any, *, input_kwargs: Mapping[str, Any] | None = None, seed: int | None = None
) -> Validation:
    """Run a model once and validate that pass; its buffers, counters and random state are then as they were."""
    check_model(model)
    with PreservedState(model).restored():
        settings = CaptureSettings(for_proof=True)
        return validate_history(run_forward_pass(model, inputs, input_kwargs, settings, seed=seed))


class Replay:
    """Replays the rows of a recorder in order."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.is_forward_mode = any(
            recorder.rows[place].name in ("_make_dual", "_unpack_dual") for place in range(0, len(recorder.rows), WIDTH)
        )
        # ref -> tangent from `_make_dual`; values lose it when their dual level ends
        self._tangents: dict[int, Tensor] = {}
        self._guard: tuple[Any, ...] = ()
        self._communicates: Callable[[Any], bool] = lambda function: False
        self._refusal: type[Exception] = _Never
        if torch.distributed.is_available() and (recorder.distributed or torch.distributed.is_initialized()):
            from torcheer.capture.proof import collectives

            self._communicates, self._refusal = collectives.is_collective, collectives.WouldCommunicate
            self._guard = (collectives.NoCollectives(),)

    def judge(self, node: int) -> tuple[str, Run | None]:
        """Replay one row; return the verdict and, if it was equal, a function that runs it again."""
        row = self.recorder.row(node)
        call = row.call
        if call.mark and call.name in _OUTSIDE:
            return f"skipped: {_OUTSIDE[call.name]}", None
        if call.name in UNINITIALISED or (call.name == "new" and _are_sizes(row.args[1:])):
            return "skipped: uninitialised memory has no value to compare", None
        if call.collective or self._communicates(call.function):
            return f"{CANNOT}: {_COLLECTIVE}", None
        try:
            row, values, expected = as_it_ran(self.recorder, node)
        except ValueUnavailable as reason:
            return f"{MISSING}: {reason}", None
        parents = list(map(self._with_tangent, row.refs, values))
        if any(map(is_lazy, (*parents, *expected))):
            return "skipped: a lazy parameter has no value yet", None
        return self._compare(node, row, parents, expected)

    def _compare(self, node: int, row: OpRow, parents: list[Tensor], expected: list[Tensor]) -> tuple[str, Run | None]:
        verdict, ended = "", not self._guard
        for modes in self._mode_combinations(node):
            if not modes[1] and not ended:
                break  # under the guard it did not finish, so it might communicate
            run = partial(rerun_row, self.recorder, node, row, modes=modes)
            try:
                results = run(parents)
            except self._refusal:
                return f"{CANNOT}: {_COLLECTIVE}", None
            except Exception as error:
                verdict = verdict or f"unequal: replay raised {type(error).__name__}: {error}"
                continue
            ended = True
            problem = difference(results, expected)
            if not problem:
                self._keep_tangents(node, row, results)
                return "equal", run
            verdict = verdict or f"unequal: {problem}"
            with suppress(Exception):  # its extra runs use other arguments and settings, which may raise
                excuse = _excuse(run, parents, results, expected)
                if excuse:
                    return excuse, None
        return verdict, None

    def _mode_combinations(self, node: int) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the (function, dispatch) modes to try.

        First none, so that no counter runs; then those that were active in the capture.
        """
        inner, outer = self.recorder.modes.get(node, ()), self.recorder.outer_modes
        ways = [((), self._guard)]
        if inner or outer:
            ways.append((outer, (*self._guard, *inner)))
        if self._guard:  # no collective was seen, but under a mode torch may choose other kernels
            ways.append(((), ()))
        return ways

    def _with_tangent(self, ref: int, value: Tensor) -> Tensor:
        if ref in self._tangents and tangent_of(value) is None:
            value = forward_ad.make_dual(value, self._tangents[ref])
        return value

    def _keep_tangents(self, node: int, row: OpRow, results: list[Tensor]) -> None:
        if self.is_forward_mode:
            for slot, tensor in enumerate(results):
                tangent = tangent_of(tensor)
                if tangent is not None:
                    self._tangents[node << SLOT_BITS | slot] = tangent


class _Never(Exception):
    """Never raised."""


def difference(results: list[Tensor], expected: list[Tensor]) -> str:
    """Describe how two results differ; "" if they are equal."""
    if len(results) != len(expected):
        return f"{len(results)} results instead of {len(expected)}"
    for slot, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if not equal_values(result, wanted):
            return f"output {slot} {difference_text(result, wanted)}"
    return ""


def _excuse(run: Run, parents: list[Tensor], results: list[Tensor], expected: list[Tensor]) -> str:
    """Return the verdict on a result that differs although the capture may be right, or ""."""
    if len(results) != len(expected) or any(map(_are_unlike, results, expected)):
        return ""
    runs = [results, *(run(parents) for _ in range(3))]
    with memory_filled():
        unwritten = list(map(_unwritten, run(parents), zip(*runs, strict=True)))
    runs, expected = (
        [list(map(_mask_out, outputs, unwritten)) for outputs in runs],
        list(map(_mask_out, expected, unwritten)),
    )
    if not difference(runs[0], expected):
        return "skipped: uninitialised memory has no value to compare"
    if any(difference(outputs, runs[0]) for outputs in runs):
        runs += [list(map(_mask_out, run(parents), unwritten)) for _ in range(6)]
        spread = max(max(map(largest_difference, outputs, runs[0])) for outputs in runs)
        gap = min(max(map(largest_difference, outputs, expected)) for outputs in runs)
        if gap <= 8 * spread:
            return f"{CANNOT}: it gives other numbers each time it runs"
    return ""


def _are_unlike(first: Tensor, second: Tensor) -> bool:
    return type(first) is not type(second) or (first.shape, first.dtype, first.device) != (
        second.shape,
        second.dtype,
        second.device,
    )


def _unwritten(filled: Tensor, runs: tuple[Tensor, ...]) -> Tensor | None:
    """Return a mask of elements that were never written.

    With filled memory they show the filling, without it something else.
    """
    if type(filled) is not Tensor or filled.layout is not torch.strided or filled.is_nested or not has_numbers(filled):
        return None
    return _is_filling(filled) & ~torch.stack([_is_filling(value) for value in runs]).all(0)


def _is_filling(value: Tensor) -> Tensor:
    if value.is_floating_point() or value.is_complex():
        return value.isnan()
    return value.eq(True if value.dtype is torch.bool else torch.iinfo(value.dtype).max)


def _mask_out(value: Tensor, unwritten: Tensor | None) -> Tensor:
    return value if unwritten is None else value.masked_fill(unwritten, 0)


_OUTSIDE = {
    "input": "inputs come from outside",
    "unseen": "unseens come from outside",
    "grad": "gradients come from autograd's engine",
}
_COLLECTIVE = "collectives are never run again: the other ranks would wait, or be misled"


def _are_sizes(args: tuple[Any, ...]) -> bool:
    """Whether `x.new(…)` got sizes (uninitialised memory) rather than data to copy."""
    return all(isinstance(value, (int, torch.Size)) for value in args)

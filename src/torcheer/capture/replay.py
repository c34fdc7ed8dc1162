"""Proof: run every recorded operation again from its recorded parents and compare bit for bit."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from torcheer.capture.perturb import dead_edges
from torcheer.capture.recorder import Recorder
from torcheer.capture.refs import SLOT_BITS
from torcheer.capture.rerun import equal_values, largest_difference, run_again
from torcheer.capture.state import random_kept
from torcheer.errors import CannotReplay, ValueUnavailable


@dataclass(slots=True)
class Validation:
    """What replay found; true when everything that could be checked held, and nothing was wrong."""

    model: str
    ops: int
    verdicts: dict[int, str] = field(default_factory=dict)  # index -> "equal", "unequal: …", "skipped: …"
    labels: dict[int, str] = field(default_factory=dict)
    dead_edges: list[str] = field(default_factory=list)  # parents that turned out not to matter

    def __bool__(self) -> bool:
        return not self.failures and not self.dead_edges and (self.equal > 0 or not self.ops)

    @property
    def equal(self) -> int:
        """How many operations replayed bit for bit."""
        return self.ops - len(self.failures) - len(self.skipped)

    @property
    def failures(self) -> dict[int, str]:
        """Operations whose replay gave something else."""
        return {index: verdict for index, verdict in self.verdicts.items() if verdict.startswith("unequal")}

    @property
    def skipped(self) -> dict[int, str]:
        """Operations that cannot be replayed, with the reason."""
        return {index: verdict for index, verdict in self.verdicts.items() if verdict.startswith("skipped")}

    def __str__(self) -> str:
        word = "held" if self else "FAILED" if self.failures or self.dead_edges else "nothing could be replayed"
        lines = [f"Validation of {self.model}: {word}"]
        lines.append(f"\t{self.equal}/{self.ops} operations replay bit for bit from their recorded parents")
        for reason, count in Counter(text.removeprefix("skipped: ") for text in self.skipped.values()).items():
            lines.append(f"\t{count} not replayed: {reason}")
        lines += [f"\t{self.labels.get(index, index)} {verdict}" for index, verdict in self.failures.items()]
        lines += [f"\tparent that does not matter: {edge}" for edge in self.dead_edges]
        return "\n".join(lines)

    __repr__ = __str__


def validate_history(history: Any, *, perturb: bool = True) -> Validation:
    """Replay every operation of a fresh history; the report is true when everything held."""
    recorder = getattr(history.trace, "recorder", None)
    if not isinstance(recorder, Recorder):
        raise CannotReplay("this history was loaded from a file; replay needs the live model: capture it again")
    report = Validation(history.trace.info().model, recorder.count)
    with torch.no_grad(), random_kept(), recorder.unseen() if torch._C._len_torch_function_stack() else nullcontext():
        for node in range(recorder.count):
            report.verdicts[node] = replay(recorder, node)
            if perturb and report.verdicts[node] == "equal":
                report.dead_edges += dead_edges(recorder, node)
    for node in (*report.failures, *report.skipped):
        report.labels[node] = history[node].label
    return report


def replay(recorder: Recorder, node: int) -> str:
    """Run one row again; what came of it."""
    row = recorder.row(node)
    call = row.call
    if call.mark and call.name == "grad":
        return "skipped: gradients come from autograd's engine"
    if call.mark and call.name in ("input", "unseen"):
        return f"skipped: {call.name}s come from outside"
    if call.name in UNINITIALISED:
        return "skipped: uninitialised memory has no value to compare"
    try:
        expected = [recorder.exact(node << SLOT_BITS | slot) for slot in range(len(recorder.outputs(node)))]
        parents = [recorder.exact(ref) for ref in row.refs]
    except ValueUnavailable as reason:
        return f"skipped: {reason}"
    try:
        found = run_again(recorder, node, row, parents)
    except Exception as error:
        return f"unequal: replay raised {type(error).__name__}: {error}"
    if len(found) != len(expected):
        return f"unequal: {len(found)} results instead of {len(expected)}"
    for slot, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not equal_values(one, other):
            return f"unequal: output {slot} differs by up to {largest_difference(one, other):.3g}"
    return "equal"


UNINITIALISED = frozenset(
    """empty empty_like new_empty empty_strided new_empty_strided resize_ resize_as_ empty_permuted
    empty_quantized""".split()
)

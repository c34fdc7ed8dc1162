"""The steps of a forward and backward pass as text for a page: a line with their order, then one line for each op.

Every line is JSON. The first: `{"version", "loss", "steps": [[phase, op], …]}`, with the phases "forward" (an operation
runs), "backward" (its rule runs) and "leaf" (a gradient has arrived). Line 1 + n is op n: what it read, returned, kept,
received and sent, its formula in pieces, and its check. Each tensor stands there once; steps refer to ops.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.formula_symbols import Symbol, formula_symbols
from torcheer.autograd.explanation.recorded_calls import Replay
from torcheer.autograd.explanation.rule_checks import Budget, RuleCheck, check_leaf, check_rule
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.encoding import array_of
from torcheer.records import Op
from torcheer.vocabulary.array_statistics import facts_of

if TYPE_CHECKING:
    from torcheer.autograd.explanation.backward_trace import BackwardTrace

VERSION = 1
_TORCH = Path(torch.__file__).parent
MOST_NUMBERS = 40  # of a tensor that is written out; of a larger one, its statistics


def step_document(trace: BackwardTrace) -> str:
    """Return the text."""
    with unrecorded():
        return "\n".join(json.dumps(line, ensure_ascii=False, allow_nan=False) for line in _Document(trace).lines())


class _Document:
    def __init__(self, trace: BackwardTrace) -> None:
        self.trace, self.ops = trace, trace.ops()
        self.values, self.gradients = trace.results, trace.all_gradients
        self.arrivals: dict[int, list[tuple[int, int]]] = {}  # op -> op and edge of each gradient sent to it, in order
        for op in reversed(self.ops):
            for edge, (parent, part) in enumerate(zip(op.parents, trace.passed.get(op.index, ()))):
                if part is not None:
                    self.arrivals.setdefault(parent.parent, []).append((op.index, edge))
        self.rule_budget = Budget(sum(len(parts) for parts in self.arrivals.values()))
        leaves = [op for op in self.ops if op.kind == "parameter" and op.index in self.arrivals]
        self.leaf_budget = Budget(len(leaves))
        self.labels = _labels(self.ops)
        self.replay, self.replay_problem = self._replay()

    def lines(self) -> list[Any]:
        return [{"version": VERSION, "loss": self.trace.info().model, "steps": self._order()}, *map(self._op, self.ops)]

    def _order(self) -> list[list[Any]]:
        """Operations as they ran; rules newest first, as the engine takes them; then leaves."""
        operations = [op.index for op in self.ops if op.kind == "op"]
        leaves = [op.index for op in self.ops if op.kind == "parameter"]
        return [
            *(["forward", index] for index in operations),
            *(["backward", index] for index in reversed(operations)),
            *(["leaf", index] for index in leaves),
        ]

    def _op(self, op: Op) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "label": self.labels[op.index],
            "kind": op.kind,
            "value": tensor_facts(self.values[op.index]) or shape_facts(op),
            "gradient": tensor_facts(self.gradients[op.index]),
            "arrivals": self.arrivals.get(op.index, []),
        }
        if op.kind == "op":
            facts |= self._operation(op)
        elif op.kind == "parameter" and op.index in self.arrivals:
            facts["check"] = self._leaf_check(op.index)
        parts = [self.trace.passed[sender][edge] for sender, edge in facts["arrivals"]]
        if parts and not _is_sum(parts, self.gradients[op.index]):
            facts["hooked"] = True
        return facts

    def _operation(self, op: Op) -> dict[str, Any]:
        step, call = op.backward, self.trace.calls[op.index]
        assert step is not None and call is not None
        counts = (op.parents and self._count(op.parents[0].parent)) or 1, self._count(op.index)
        return {
            "title": step.title,
            "module": ".".join(call.address for call in op.modules[-1:]),
            "source": _place(op),
            "why": step.why,
            "borrowed": step.borrowed,
            "kept": step.saved,
            "equations": [[_symbol(symbol) for symbol in pieces] for pieces in formula_symbols(call, op, counts)],
            "reads": [self._edge(op, number) for number in range(len(op.parents))],
        }

    def _count(self, index: int) -> int:
        return math.prod(self.ops[index].outputs[0].shape)

    def _edge(self, op: Op, number: int) -> dict[str, Any]:
        edge, sent = op.parents[number], self.trace.passed[op.index][number]
        call = self.trace.calls[op.index]
        assert call is not None
        place = edge.where[0]
        names = call.rule.parameters
        name = names[place] if isinstance(place, int) and place < len(names) else ""
        facts: dict[str, Any] = {"op": edge.parent, "argument": name, "sent": tensor_facts(sent)}
        if (op.index, number) in self.trace.broadcast:
            facts["before"] = self.trace.broadcast[op.index, number]
        if sent is not None:
            facts["check"] = self._rule_check(op, number, sent)
        return facts

    # Checks

    def _rule_check(self, op: Op, number: int, sent: Tensor) -> dict[str, Any]:
        call, arrived, edge = self.trace.calls[op.index], self.gradients[op.index], op.parents[number]
        assert call is not None
        if arrived is None or any(self.values[index] is None for index in call.reads()):
            return _check_facts(RuleCheck(note="a value that it read was not kept"))
        try:
            check = check_rule(call, edge, self.values, op.index, arrived, sent, self.rule_budget)
        except Exception as error:  # any function of the user's, in another precision than it was written for
            check = RuleCheck(note=f"run again in double precision, it raised {type(error).__name__}")
        return _check_facts(check)

    def _replay(self) -> tuple[Replay | None, str]:
        if any(call is not None and call.function is None for call in self.trace.calls):
            return None, "an operation of the forward pass cannot be run again by itself"
        try:
            return Replay(self.trace.calls, self.values), ""
        except Exception as error:  # as above
            return None, f"the forward pass, run again in double precision, raised {type(error).__name__}"

    def _leaf_check(self, index: int) -> dict[str, Any]:
        gradient, first = self.gradients[index], self.gradients[-1]
        if self.replay is None or first is None:
            return _check_facts(RuleCheck(note=self.replay_problem))
        try:
            return _check_facts(check_leaf(self.replay, index, gradient, first, self.leaf_budget))
        except Exception as error:
            return _check_facts(RuleCheck(note=f"run again in double precision, it raised {type(error).__name__}"))


def _place(op: Op) -> str:
    """The user's line that an operation was called from; "" for one inside of torch, whose module says more."""
    if op.source is None or Path(op.source.file).is_relative_to(_TORCH):
        return ""
    return f"{Path(op.source.file).name}:{op.source.line}"


def _labels(ops: list[Op]) -> list[str]:
    """Names that tell operations apart: the second of several `mul` is `mul_2`."""
    totals, seen = Counter(op.name for op in ops), Counter[str]()
    labels = []
    for op in ops:
        seen[op.name] += 1
        labels.append(f"{op.name}_{seen[op.name]}" if totals[op.name] > 1 else op.name)
    return labels


def _symbol(symbol: Symbol) -> Any:
    """A piece of a formula: text, or [text, role, edge or number]."""
    if not symbol.role:
        return symbol.text
    if symbol.role == "number":
        return [symbol.text, "number", _number(symbol.number)]
    return [symbol.text, symbol.role, symbol.edge]


def _check_facts(check: RuleCheck) -> dict[str, Any]:
    if check.note:
        return {"note": check.note}
    rows = [
        [each.index, _number(each.by_rule), _number(each.by_differences), _number(each.error), each.is_kink]
        for each in check.numbers
    ]
    return {"rows": rows, "worst": _number(check.worst), "passed": check.passed}


def tensor_facts(value: Any) -> dict[str, Any] | None:
    """A tensor: its numbers if they are few, else statistics; None for none."""
    if not isinstance(value, Tensor):
        return None
    plain = value.detach().as_subclass(Tensor)
    facts: dict[str, Any] = {"shape": list(plain.shape), "type": str(plain.dtype).removeprefix("torch.")}
    if plain.numel() <= MOST_NUMBERS:
        facts["numbers"] = [_number(number) for number in plain.reshape(-1).tolist()]
    else:
        statistics = facts_of(array_of(plain))
        facts |= {name: _number(number) for name, number in statistics.items() if number is not None}
    return facts


def shape_facts(op: Op) -> dict[str, Any]:
    """A tensor whose numbers are lost."""
    meta = op.outputs[0]
    return {"shape": list(meta.shape), "type": meta.dtype.removeprefix("torch.")}


def _number(value: Any) -> Any:
    """A number with the digits that people read; NaN and infinities by name, as JSON has none."""
    if isinstance(value, int) or math.isfinite(value):
        return value if isinstance(value, int) else float(f"{value:.6g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _is_sum(parts: list[Tensor], gradient: Any) -> bool:
    """True if nothing but a sum became of the gradients that were sent: no hook changed it."""
    if gradient is None:
        return True
    total = sum(parts[1:], parts[0])
    return total.shape == gradient.shape and bool(
        (total - gradient).abs().nan_to_num(0).le(1e-3 * (1 + total.abs())).all()
    )

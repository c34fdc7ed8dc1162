"""How the tape handles each torch function: looked up by name, then cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.rules.rule_table import COMPOSITES, RULES, listeners
from torcheer.capture.record.function_table import lookup_call

PASS, RULE, COMPOSITE, OPENED, WRITE, SPECIAL, UNKNOWN = "pass rule composite opened write special unknown".split()


class FunctionPlan:
    """How one torch function is handled: its kind, and the rule, composite or twin to use."""

    __slots__ = (
        "composite",
        "constant",
        "function",
        "functional",
        "kind",
        "name",
        "rule",
        "special",
        "twin",
        "view",
        "where",
    )

    def __init__(self, function: Any, name: str, where: str) -> None:
        self.function, self.name, self.where = function, name, where
        self.kind = UNKNOWN
        self.rule: Any = None  # a Rule, where the kind is RULE
        self.composite: Callable[..., Any] | None = None
        self.twin: Callable[..., Any] | None = None
        self.special: Callable[..., Any] | None = None
        self.functional: Any = None  # of an in-place function: its out-of-place form
        self.view = False
        self.constant = False  # its result does not depend on the values of its arguments


SPECIALS: dict[Any, Callable[..., Any]] = {}  # replacements for torch's autograd API
_plans: dict[Any, FunctionPlan] = {}
listeners.append(_plans.clear)

# Torch's name of a function -> its name in the tables of rules.
_ALIASES = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "subtract": "sub",
    "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "multiply": "mul",
    "__truediv__": "div", "true_divide": "div", "divide": "div", "__div__": "div", "__itruediv__": "div_",
    "__rtruediv__": "rdiv", "__rdiv__": "rdiv", "__pow__": "pow", "__rpow__": "rpow", "__ipow__": "pow_",
    "__matmul__": "matmul", "__rmatmul__": "rmatmul", "__imatmul__": "matmul_", "__neg__": "neg", "negative": "neg",
    "__pos__": "positive", "__abs__": "abs", "absolute": "abs", "__getitem__": "getitem", "__setitem__": "setitem_",
    "clip": "clamp", "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose",
    "moveaxis": "movedim", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctan2": "atan2",
    "__mod__": "remainder", "__floordiv__": "floor_divide", "__rmod__": "rmod", "special_expit": "sigmoid",
    "special_erf": "erf", "special_log1p": "log1p", "special_expm1": "expm1", "special_softmax": "softmax",
    "special_log_softmax": "log_softmax", "special_logsumexp": "logsumexp", "view_as": "reshape_as",
    "det": "linalg_det", "inverse": "linalg_inv", "cholesky": "linalg_cholesky", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh",
    "special_erfc": "erfc", "special_erfinv": "erfinv", "special_gammaln": "lgamma", "special_digamma": "digamma",
    "special_psi": "digamma", "special_polygamma": "polygamma", "special_logit": "logit", "special_sinc": "sinc",
    "special_exp2": "exp2", "special_xlogy": "xlogy", "special_round": "round", "special_multigammaln": "mvlgamma",
    "as_tensor": "to", "asarray": "to", "__ifloordiv__": "floor_divide_", "__imod__": "remainder_",
}  # fmt: skip

# Functions whose float results do not depend on the values of their arguments.
_CONSTANT = frozenset(
    """zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full
    new_tensor new bernoulli multinomial normal detach data detach_copy poisson empty_strided new_empty_strided tensor
    scalar_tensor floor_divide heaviside""".split()
)


def plan_of(function: Any) -> FunctionPlan:
    """Return the plan of a function, cached."""
    plan = _plans.get(function)
    if plan is None:
        plan = _plans[function] = _make_plan(function)
    return plan


def _make_plan(function: Any) -> FunctionPlan:
    call = lookup_call(function)
    name = _ALIASES.get(call.name, call.name)
    plan = FunctionPlan(function, name, call.where)
    plan.view = call.view
    plan.constant = name in _CONSTANT
    plan.special = SPECIALS.get(function)
    if plan.special is not None:
        plan.kind = SPECIAL
    elif call.skip or call.where.startswith("torch.nn.init."):
        plan.kind = PASS
    elif plan.constant:
        plan.kind = UNKNOWN
    elif call.twin is not None and (function not in _NOT_OPENED):
        plan.kind, plan.twin = OPENED, call.twin
        if name in COMPOSITES and name in _OURS_FIRST:
            plan.kind, plan.composite = COMPOSITE, COMPOSITES[name]
    elif name in RULES:
        plan.kind, plan.rule, plan.twin = RULE, RULES[name], call.twin
    elif name in COMPOSITES:
        plan.kind, plan.composite = COMPOSITE, COMPOSITES[name]
    elif call.writes and (functional := _find_functional(name)) is not None:
        plan.kind, plan.functional = WRITE, functional
    return plan


# Python functions of torch.nn.functional that need not be opened, except to write in place: there is a rule.
_NOT_OPENED = frozenset({torch.nn.functional.relu})
# Functions for which our composite is recorded instead of torch's own Python code.
_OURS_FIRST = frozenset({"dropout"})


def _find_functional(name: str) -> Any:
    """Return the out-of-place form of an in-place function, or None."""
    from torcheer.autograd.tape.inplace_writes import OUT_OF_PLACE

    if name in OUT_OF_PLACE:
        return OUT_OF_PLACE[name]
    bare = name.rstrip("_")
    for namespace in (Tensor, torch, torch.nn.functional, torch._C._nn):
        function = getattr(namespace, bare, None)
        if function is not None and (bare in RULES or bare in COMPOSITES or namespace is Tensor):
            return function
    return None

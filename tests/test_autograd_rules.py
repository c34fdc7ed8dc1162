"""Every rule and every composite, on the samples of one table: against torch, and against finite differences."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import pytest
import torch
from autograd_samples import SAMPLES, Sample
from seams import BACKWARD_RULES as RULES
from seams import COMPOSITES, leaves, node_of, reachable_nodes
from seams import parse_rule as parse
from torch import Tensor

from torcheer import autograd

NAMES = [*RULES, *COMPOSITES]

# Torch rounds their constants to single precision.
INEXACT = {"hardsigmoid", "rrelu", "hardswish", "celu", "elu", "selu", "binary_cross_entropy"}
# At ties torch loses a part of scatter_reduce's gradient, at zero it has none for Poisson counts; a matrix that has no
# inverse is an error here.
AT_EDGES = {
    "scatter_reduce", "scatter_extreme", "poisson_nll_loss",
    "linalg_cholesky_ex", "linalg_det", "logabsdet", "slogdet", "linalg_slogdet", "logdet",
}  # fmt: skip
# Here they hand back the very tensor that they are given.
SAME = {"positive", "conj", "conj_physical", "resolve_conj", "resolve_neg", "real", "cpu", "cuda"}
# Torch itself has no second order here, or only a wrong one.
ONCE = {
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "fractional_max_pool2d", "fractional_max_pool3d", "cdist",
    "pdist", "embedding_bag", "multi_margin_loss", "multilabel_margin_loss", "hardsigmoid", "_weight_norm",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


def outputs(result: Any) -> list[Tensor]:
    """The float tensors of a result that gradients can come from."""
    return [one for one in leaves(result) if one.is_floating_point() and one.requires_grad]


def random_like(tensors: list[Any], seed: int = 1) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(one.shape, generator=random, dtype=torch.float64).to(one.dtype) for one in tensors]


def gradients(call: Any, tensors: list[Tensor], twice: bool = False) -> list[Tensor]:
    """Of a random mixture of the results; with `twice`, of a random mixture of those gradients."""
    found = outputs(call(*tensors))
    first = torch.autograd.grad(found, tensors, random_like(found), create_graph=twice, allow_unused=True)
    if twice:
        mixed = [pair for pair in zip(first, random_like(tensors, 2)) if pair[0] is not None and pair[0].requires_grad]
        live, weights = [list(one) for one in zip(*mixed)] if mixed else ([], [])
        first = torch.autograd.grad(live, tensors, weights, allow_unused=True) if live else (None,) * len(tensors)
    return [torch.zeros_like(one) if found is None else found for one, found in zip(tensors, first)]


def torchs(call: Any, tensors: list[Tensor], twice: bool = False) -> list[Tensor]:
    try:
        return gradients(call, tensors, twice)
    except RuntimeError as error:
        if "derivative for" in str(error) and "not implemented" in str(error):
            pytest.skip(f"this torch has none: {error}")
        raise


def ours(call: Any, tensors: list[Tensor], twice: bool = False) -> list[Tensor]:
    with autograd.record():
        return gradients(call, tensors, twice)


def assert_equal(mine: list[Tensor], theirs: list[Tensor], within: float) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=within, atol=within, equal_nan=True)


# The lesson itself


def test_every_rule_and_composite_has_a_sample_and_every_sample_a_rule() -> None:
    assert [name for name in NAMES if not SAMPLES.get(name)] == []
    assert [name for name in SAMPLES if name not in NAMES] == []


def test_every_docstring_is_a_formula_and_a_reason() -> None:
    assert [name for name in NAMES if not explains(RULES[name].function if name in RULES else COMPOSITES[name])] == []


def explains(function: Any) -> bool:
    """Whether its docstring is a formula between dollar signs, a colon, and a sentence."""
    doc = " ".join((function.__doc__ or "").split())
    formula, why = parse(doc)
    return bool(formula) and doc.count("$") % 2 == 0 and ": " in doc and why.endswith(".") and len(why.split()) > 1


def test_no_rule_is_longer_than_ten_lines() -> None:
    assert {name: lines for name in RULES if (lines := lines_of(RULES[name].function)) > 10} == {}


def test_a_rule_is_one_function_in_the_folder_of_its_lesson() -> None:
    assert {RULES[name].function.__module__.rpartition(".")[0] for name in RULES} == {"torcheer.autograd.rules"}
    assert {function.__module__.rpartition(".")[0] for function in COMPOSITES.values()} == {
        "torcheer.autograd.composites"
    }


def test_no_composite_is_longer_than_eighteen_lines() -> None:
    assert {name: lines for name in COMPOSITES if (lines := lines_of(COMPOSITES[name])) > 18} == {}


def lines_of(function: Any) -> int:
    """The length of its body, without the docstring."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    first, last = definition.body[1], definition.body[-1]
    return (last.end_lineno or 0) - first.lineno + 1


# The gradients


@pytest.mark.parametrize("name", NAMES)
def test_values_and_first_order_equal_torchs(name: str) -> None:
    met: set[str] = set()
    for sample in SAMPLES[name]:
        tensors, call = sample.made()
        with autograd.record():
            result = call(*tensors)
            met |= names_behind(outputs(result))
        expected = leaves(call(*tensors))
        assert_equal([one.detach() for one in leaves(result)], [one.detach() for one in expected], 1e-12)
        coarse = any(one.is_floating_point() and one.dtype != torch.float64 for one in expected)
        assert_equal(ours(call, tensors), torchs(call, tensors), 1e-3 if coarse else tolerance(name))
    assert name in met or name in SAME, "the samples do not run what they are samples of"


def names_behind(results: list[Tensor]) -> set[str]:
    """The rules and composites that led to some results."""
    names = set()
    for node in reachable_nodes([node_of(one) for one in results]):
        names.add(node.rule.name)
        scope = node.scope
        while scope is not None:
            names.add(scope.name)
            scope = scope.outer
    return names


def tolerance(name: str) -> float:
    return 1e-7 if name in INEXACT else 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_an_argument_that_asks_alone_gets_the_same(name: str) -> None:
    for sample in SAMPLES[name]:
        tensors, call = sample.made()
        for place in range(len(tensors) if len(tensors) > 1 else 0):
            quiet = [one.detach() for one in tensors]

            def alone(one: Tensor, place: int = place, call: Any = call, quiet: list[Tensor] = quiet) -> Any:
                return call(*quiet[:place], one, *quiet[place + 1 :])

            if outputs(alone(tensors[place])):
                asked = [tensors[place]]
                assert_equal(ours(alone, asked), gradients(alone, asked), tolerance(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in AT_EDGES])
def test_first_order_equals_torchs_at_ties_zeros_and_ones_too(name: str) -> None:
    for sample in SAMPLES[name]:
        for edge in (torch.round, torch.zeros_like, torch.ones_like):
            tensors, call = sample.made()
            tensors = [edge(one.detach()).requires_grad_() for one in tensors]
            try:
                theirs = torchs(call, tensors)
            except RuntimeError:
                continue  # a matrix of zeros has no inverse
            assert_equal(ours(call, tensors), theirs, max(tolerance(name), 1e-9))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "as_strided"])  # which refuses parts of a memory
def test_first_order_equals_torchs_for_inputs_with_gaps_in_their_memory(name: str) -> None:
    for sample in SAMPLES[name]:
        tensors, call = sample.made()
        gaps = [torch.stack([one.detach(), one.detach()], -1)[..., 0].requires_grad_() for one in tensors]
        try:
            theirs = torchs(call, gaps)
        except RuntimeError:
            continue  # it asks for memory without gaps, as view does
        coarse = any(one.is_floating_point() and one.dtype != torch.float64 for one in leaves(call(*gaps)))
        assert_equal(ours(call, gaps), theirs, 1e-3 if coarse else tolerance(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ONCE])
def test_second_order_equals_torchs(name: str) -> None:
    for sample in SAMPLES[name]:
        tensors, call = sample.made()
        assert_equal(ours(call, tensors, True), torchs(call, tensors, True), tolerance(name) * 10)


@pytest.mark.parametrize("name", NAMES)
def test_first_order_equals_central_differences(name: str) -> None:
    for sample in SAMPLES[name]:
        if differences_say_nothing(sample):
            continue
        tensors, call = sample.made()
        ways, weights = random_like(tensors, 3), random_like(outputs(call(*tensors)))
        slope = along(lambda *moved, call=call, weights=weights: dot(outputs(call(*moved)), weights), tensors, ways)
        assert slope == pytest.approx(dot(ours(call, tensors), ways), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_second_order_equals_central_differences_where_torch_has_none(name: str) -> None:
    for sample in SAMPLES[name]:
        tensors, call = sample.made()
        ways, weights = random_like(tensors, 3), random_like(tensors, 2)
        slope = along(lambda *moved, call=call, weights=weights: dot(ours(call, list(moved)), weights), tensors, ways)
        assert slope == pytest.approx(dot(ours(call, tensors, twice=True), ways), rel=1e-4, abs=1e-5)


def differences_say_nothing(sample: Sample) -> bool:
    """Whether it goes through coarser numbers, or was never meant to be the slope."""
    tensors, call = sample.made()
    return "scale_grad_by_freq" in sample.kwargs or any(one.dtype != torch.float64 for one in outputs(call(*tensors)))


def along(function: Any, tensors: list[Tensor], ways: list[Tensor], step: float = 1e-6) -> float:
    """How a function grows along a direction."""
    ends = []
    for sign in (1, -1):
        moved = [one.detach() + sign * step * way for one, way in zip(tensors, ways)]
        ends.append(function(*[one.requires_grad_() for one in moved]))
    return float(ends[0] - ends[1]) / (2 * step)


def dot(left: list[Tensor], right: list[Tensor]) -> float:
    return sum(float((one.detach() * other).sum()) for one, other in zip(left, right, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_has_the_type_and_shape_of_what_it_belongs_to(name: str, dtype: torch.dtype) -> None:
    tensors, call = SAMPLES[name][0].made(dtype)
    try:
        theirs = torchs(call, tensors)
    except RuntimeError:
        pytest.skip(f"torch has no {name} for {dtype}")
    assert_equal(ours(call, tensors), theirs, 1e-4 if dtype is torch.float32 else 0.2)

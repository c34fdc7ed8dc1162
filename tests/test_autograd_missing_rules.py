"""Operations without a rule: told, borrowed, added, refused; and users' own Functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from autograd_checks import assert_same_gradients, leaf
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torcheer import autograd
from torcheer.errors import MissingRule, NotTraced

# Rules that are missing, borrowed, added


def test_a_missing_rule_names_the_operation_the_line_and_the_way_out() -> None:
    with autograd.record(), pytest.raises(MissingRule) as problem:
        torch.linalg.eigvalsh(leaf(3, 3) * 1)  # this very line
    text = str(problem.value)
    assert "eigvalsh" in text and "# this very line" in text and "test_autograd_missing_rules.py" in text
    assert '@autograd.rule("' in text and "def " in text and "return" in text and "borrow=True" in text


def test_a_borrowed_rule_gives_torchs_gradient_and_is_marked() -> None:
    x, other = leaf(3, 3, seed=4), leaf(3, 3, seed=4)
    torch.linalg.eigvalsh(other @ other.T).sum().backward()
    with autograd.record(borrow=True):
        y = torch.linalg.eigvalsh(x @ x.T).sum()
        assert [step.name for step in autograd.explain(y) if step.borrowed] == ["linalg_eigvalsh"]
        y.backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_several_results_are_borrowed_together() -> None:
    x, other = leaf(3, 2, seed=4), leaf(3, 2, seed=4)

    def function(a: Tensor) -> Tensor:
        q, r = torch.linalg.qr(a * 1)
        return (q * 2).sum() + r.square().sum()

    function(other).backward()
    with autograd.record(borrow=True):
        function(x).backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_a_user_adds_a_rule_and_a_composite(monkeypatch: pytest.MonkeyPatch) -> None:
    from seams import BACKWARD_RULES as RULES
    from seams import COMPOSITES, notify_listeners

    rules, composites = dict(RULES), dict(COMPOSITES)
    try:

        @autograd.rule("trace")
        def trace(g: Any, x: autograd.Shape) -> Any:
            r"""$\bar x = \bar y\,I$: only the diagonal was summed."""
            return g * torch.eye(*x.shape, dtype=g.dtype)

        @autograd.composite("i0")
        def i0(x: Tensor) -> Tensor:
            return x * 3

        x = leaf(2, 2)
        with autograd.record():
            (x.trace() * 2 + torch.i0(x).sum()).backward()
        assert torch.equal(x.grad, 2 * torch.eye(2, dtype=torch.float64) + 3)
    finally:
        RULES.clear()
        RULES.update(rules)
        COMPOSITES.clear()
        COMPOSITES.update(composites)
        notify_listeners()


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x.round(), x * x

    @staticmethod
    def backward(ctx: Any, one: Tensor, two: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return one * ctx.scale + two * 2 * x, None


def test_a_custom_function_keeps_its_own_backward() -> None:
    assert_same_gradients(lambda a: sum(part.sum() for part in Straight.apply(a * 2, 5.0)), (4,))


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


def test_a_custom_function_can_be_differentiated_twice() -> None:
    def function(x: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(Exponential.apply(x * 2).sum(), x, create_graph=True)
        return (slope * slope).sum()

    assert_same_gradients(function, (3,))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_work(reentrant: bool) -> None:
    assert_same_gradients(
        lambda x, w: checkpoint(lambda x: torch.tanh(x @ w), x * 1, use_reentrant=reentrant).sum(), (2, 3), (3, 3)
    )


# Where nothing can be seen


def test_a_scripted_module_is_refused() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    with autograd.record(), pytest.raises(NotTraced, match="TorchScript"):
        scripted(torch.randn(1, 2))


def test_a_result_of_torchs_own_autograd_is_refused() -> None:
    y = leaf(2) * 2
    with autograd.record(), pytest.raises(NotTraced, match="no recorder can look"):
        y * 2
    with pytest.raises(NotTraced, match=r"outside of autograd\.record"):
        autograd.backward(y.sum())
    assert y.sum().grad_fn is not None


def test_a_transform_of_traced_tensors_is_refused_and_of_others_let_be() -> None:
    with autograd.record():
        x = leaf(3) * 1
        with pytest.raises(NotTraced, match="vmap"):
            torch.vmap(lambda row: row * 2)(x)
        assert torch.equal(torch.func.grad(lambda x: (x * x).sum())(torch.ones(2)), torch.full((2,), 2.0))


def test_compiled_code_runs_as_the_python_it_was_made_from() -> None:
    def never(graph: Any, inputs: Any) -> Any:
        raise AssertionError("it was compiled")

    x = leaf(3)
    with autograd.record():
        torch.compile(lambda x: x.tanh().sum(), backend=never)(x).backward()
    torch.testing.assert_close(x.grad, 1 - x.detach().tanh() ** 2)

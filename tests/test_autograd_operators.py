"""Operators of one's own, in our style and in torchtrace's."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from autograd_checks import close
from seams import node_of

import torcheer.autograd as torchtrace
from torcheer.autograd import base, nn, optim, record, tracer
from torcheer.autograd.base import Back, End, Input, Operator, Pass
from torcheer.autograd.nn import Linear, ReLU, Sequential
from torcheer.errors import GraphFreed, MissingRule, RuleMistake

# Operators of one's own, with forward and backward


class Traced(Operator):
    def forward(self, x):
        return x.exp() * x


class Cube(Operator):
    def forward(self, x):
        self.x = x
        return x**3

    def backward(self, grad):
        r"""$\bar x = 3 x^2 \bar y$: three times the square."""
        return 3 * self.x**2 * grad


class OldSquare(Operator):
    """As torchtrace's users write them."""

    def __init__(self):
        self._name = "Square()"

    @Operator.Pass
    def __call__(self, x):
        return x**2

    @Operator.Back
    def backward(self, grad, show=False):
        return 2 * self._father.getOutput() * grad


class OldExp(Operator):
    @Pass
    def __call__(self, x):
        return x.exp()

    @Back
    def backward(self, grad, show=False):
        return self._out_x * grad


class OldScale(Operator):
    """With a weight whose gradient it assigns."""

    def __init__(self, size):
        self.weight = tracer(torch.full((size,), 3.0)).requires_grad_()

    @Operator.Pass
    def __call__(self, x):
        return x * self.weight

    @Operator.Back
    def backward(self, grad, show=False):
        self.weight.grad = (grad * self._father.getOutput()).reshape(-1, *self.weight.shape).sum(0)
        return grad * self.weight


class OldLoss(Operator):
    @End
    def __call__(self, x, target):
        self.miss = x - target
        return (self.miss**2).sum()

    @Back
    def backward(self, grad, show=False):
        return 2 * self.miss * grad


def value(*numbers: float) -> tracer:
    return tracer(list(numbers)).requires_grad_()


def test_an_operator_without_backward_is_traced_part_by_part():
    a = value(2.0)
    out = Traced()(a)
    assert node_of(out).rule.name == "mul"
    out.Sum().backward()
    assert torch.allclose(a.grad, torch.tensor(2.0).exp() * 3)


def test_an_operator_with_backward_is_one_step_under_its_own_name_and_formula():
    node = node_of(Cube()(value(2.0)))
    assert (node.rule.name, node.rule.formula, node.rule.why) == (
        "Cube()",
        r"\bar x = 3 x^2 \bar y",
        "three times the square.",
    )
    assert [type(parent) for parent in node.parents] == [tracer]


@pytest.mark.parametrize(
    ("op", "slope"),
    [(Cube(), lambda x: 3 * x**2), (OldSquare(), lambda x: 2 * x), (OldExp(), torch.exp)],
    ids=["ours", "input", "output"],
)
def test_an_operator_used_several_times_meets_each_calls_own_values(op, slope):
    a, b = value(2.0), value(0.5)
    (op(a) * 10 + op(b)).Sum().backward()
    assert torch.allclose(a.grad, 10 * slope(torch.tensor([2.0])))
    assert torch.allclose(b.grad, slope(torch.tensor([0.5])))


@pytest.mark.parametrize("op", [Cube(), OldSquare()], ids=str)
def test_an_operator_can_follow_itself_on_branches(op, doubles):
    power = 3 if isinstance(op, Cube) else 2
    a, plain = value(1.5), torch.tensor([1.5], requires_grad=True)
    (op(op(a)) + op(a) * a).Sum().backward()
    (plain ** (power * power) + plain**power * plain).sum().backward()
    assert close(a.grad, plain.grad)


def test_a_second_backward_through_an_operator_adds():
    a = value(2.0)
    op = Cube()
    for _ in range(2):
        op(a).Sum().backward()
    assert a.grad.tolist() == [24.0]


def test_the_gradient_an_operator_assigns_to_its_weight_is_added_not_overwritten():
    op, a = OldScale(2), value(1.0, 2.0)
    for _ in range(2):
        op(op(a)).Sum().backward()
    assert op.weight.grad.tolist() == [12.0, 24.0]  # twice 2·w·a
    assert a.grad.tolist() == [18.0, 18.0]


def test_a_weight_learns_where_the_input_asks_for_nothing():
    op = OldScale(2)
    op(torch.tensor([5.0, 6.0])).Sum().backward()
    assert op.weight.grad.tolist() == [5.0, 6.0]


def test_grad_asks_for_an_operators_weight_without_touching_it():
    op = OldScale(1)
    (found,) = torchtrace.grad(op(value(4.0)).Sum(), op.weight)
    assert found.tolist() == [4.0]
    assert op.weight.grad is None


def test_a_loss_in_torchtraces_style_can_be_followed_by_more():
    a = value(1.0, 5.0)
    loss = OldLoss()
    (loss(a, torch.zeros(2)) + 3 * loss(a, torch.ones(2))).backward()
    assert a.grad.tolist() == [2.0 + 0.0, 10.0 + 24.0]


def test_operators_of_all_kinds_train_together_and_show_their_names(capsys):
    model = Sequential(Linear(2, 2), OldSquare(), ReLU(), Cube(), Traced(), OldScale(2))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    loss, x, losses = nn.MSE(), torch.rand(8, 2), []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(loss(model(x), torch.ones(8, 2)))
        losses[-1].backward(show=len(losses) == 1)
        optimizer.step()
    assert losses[-1] < losses[0]
    assert capsys.readouterr().out.splitlines() == [
        "BackProp:", "↘︎ Mean Square Loss", "↘︎ OldScale()", "↘︎ Traced()", "↘︎ Cube()", "↘︎ ReLU()", "↘︎ Square()",
        "↘︎ Linear layer (2 X 2)", "↘︎ Input",
    ]  # fmt: skip


@pytest.mark.parametrize("op", [Cube(), OldSquare(), OldExp()], ids=str)
def test_gradients_of_gradients_go_through_an_operators_own_backward(op, doubles):
    a = value(1.5)
    (first,) = torchtrace.grad(op(a).Sum(), a, create_graph=True)
    (second,) = torchtrace.grad(first.Sum(), a)
    wanted = {Cube: 9.0, OldSquare: 2.0, OldExp: np.exp(1.5)}[type(op)]
    assert second.item() == pytest.approx(wanted, rel=1e-12)


def test_a_value_computed_unseen_stops_gradients_of_gradients():
    a = value(1.0)
    with pytest.raises(MissingRule, match=r"OldLoss\(\) cannot be differentiated twice: its forward keeps self.miss"):
        torchtrace.grad(OldLoss()(a, torch.zeros(1)), a, create_graph=True)


def test_an_operator_may_return_what_it_was_given():
    class Reverse(Operator):
        def forward(self, x):
            return x

        def backward(self, grad):
            return -grad

    for a in (value(1.0), torch.ones(1, requires_grad=True)):
        Reverse()(a).Sum().backward()
        assert a.grad.tolist() == [-1.0]


def test_an_operator_may_write_to_the_gradient_it_is_given():
    class Blank(Operator):
        def forward(self, x):
            return x * 1

        def backward(self, grad):
            return grad.zero_()

    a = value(1.0)
    b = a * 2
    (Blank()(b) + b).Sum().backward()
    assert a.grad.tolist() == [2.0]


def test_several_inputs_get_a_gradient_each_and_may_be_named():
    class Product(Operator):
        def forward(self, a, times, b):
            self.a, self.b, self.times = a, b, times
            return a * b * times

        def backward(self, grad):
            return grad * self.b * self.times, None, grad * self.a * self.times

    a, b = value(2.0), value(5.0)
    Product()(a, 10, b=b).Sum().backward()
    assert (a.grad.item(), b.grad.item()) == (50.0, 20.0)


def test_what_backward_notes_on_the_operator_stays_there():
    class Counting(Operator):
        asked = 0

        def forward(self, x):
            return x * 1

        def backward(self, grad):
            self.asked += 1
            return grad

    op = Counting()
    (op(value(1.0)) + op(value(1.0))).Sum().backward()
    assert op.asked == 2
    assert "_father" not in vars(op)


def test_a_gradient_for_something_that_is_no_tensor_is_a_mistake():
    class Wrong(Operator):
        def forward(self, x, times):
            return x * times

        def backward(self, grad):
            return grad, grad

    with pytest.raises(RuleMistake, match=r"Wrong\(\) returned a gradient for argument 1, which is no tensor but int"):
        Wrong()(value(1.0), 3).Sum().backward()


def test_too_many_gradients_are_a_mistake():
    class Wrong(Operator):
        def forward(self, x):
            return x * 2

        def backward(self, grad):
            return grad, grad

    with pytest.raises(RuleMistake, match=r"Wrong\(\) returned 2 gradients for 1 arguments"):
        Wrong()(value(1.0)).Sum().backward()


def test_two_results_need_a_traced_operator():
    class Two(Operator):
        def forward(self, x):
            return x, x

        def backward(self, grad):
            return grad

    with pytest.raises(RuleMistake, match=r"returns one tensor; it returned tuple. Make it two operators"):
        Two()(value(1.0))


def test_an_operator_without_anything_says_what_it_needs():
    with pytest.raises(
        NotImplementedError, match=r"Empty needs a forward\(self, x\), or a __call__ under Operator.Pass"
    ):
        type("Empty", (Operator,), {})()(value(1.0))


def test_an_operators_own_backward_is_freed_with_its_node():
    op, a = Cube(), value(1.0)
    out = op(a).Sum()
    out.backward()
    with pytest.raises(GraphFreed):
        out.backward()


def test_an_input_stands_for_what_was_given():
    assert Input(3).getOutput() == 3
    assert (str(Input()), base.Input is nn.Input) == ("Input", True)


def test_a_list_of_inputs_gets_a_list_of_gradients():
    class Cat(Operator):
        def forward(self, pieces):
            self.lengths = [len(piece) for piece in pieces]
            return torch.cat(pieces)

        def backward(self, grad):
            return (grad.split(self.lengths),)

    a, b = value(1.0, 2.0), value(3.0)
    (Cat()([a, b * 2]) * torch.tensor([1.0, 2.0, 3.0])).Sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([1.0, 2.0], [6.0])


def test_operators_take_part_in_a_recording_of_ordinary_torch_code():
    weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
    with record():
        Cube()(weight * 2).sum().backward()
    assert weight.grad.tolist() == [96.0, 216.0]


def test_a_result_that_is_dropped_takes_all_that_was_kept_for_it_along():
    op, a = Cube(), value(1.0)
    gc.disable()
    try:
        node = weakref.ref(node_of(op(a)))
        assert node() is None
    finally:
        gc.enable()


def test_too_few_gradients_are_told():
    class Product(Operator):
        def forward(self, a, b):
            return a * b

        def backward(self, grad):
            return grad

    a, b = (tracer([2.0]).requires_grad_() for _ in range(2))
    with pytest.raises(RuleMistake, match="1 gradients for 2 arguments"):
        Product()(a, b).backward()

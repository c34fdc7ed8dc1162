"""Values keep their autograd graph: backward from any of them reaches the parameters, whatever was written later."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import copy_on_write
from torch import nn

import torcheer as tl


class Block(nn.Module):
    """A residual block that writes in place wherever torch lets it."""

    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def net():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(inplace=True), Block(4), Block(4), nn.Flatten(), nn.Linear(4 * 36, 5)).double()


X = torch.rand(2, 3, 6, 6, dtype=torch.float64)


def first_of(value):
    return value[0] if isinstance(value, tuple) else value


def gradients(value, model):
    """What backward from a value gives the parameters."""
    model.zero_grad()
    (value * torch.linspace(-1, 1, value.numel(), dtype=value.dtype).view(value.shape)).sum().backward(
        retain_graph=True
    )
    return [parameter.grad for parameter in model.parameters()]


def same(one, other):
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("guard", ["write", "clone"])
def test_every_value_sends_the_gradients_that_a_clone_taken_by_a_mode_sends(training, guard):
    class Clones(torch.overrides.TorchFunctionMode):
        """Each result cloned as it comes, as a hook would do; written apart from the package."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and getattr(func, "__name__", "") in NAMES:
                taken.append(out.clone())
            return out

    taken = []
    model = net().train(training)
    history = tl.log_forward_pass(model, X.clone(), layers_to_save=tl.Save("all", guard=guard))
    ops = [op for op in history if op.kind == "op"]
    NAMES = {"conv2d", "batch_norm", "relu", "relu_", "__iadd__", "iadd", "add_", "flatten", "linear"}
    reference = net().train(training)
    with Clones():
        reference(X.clone())
    assert len(ops) == len(taken) > 12
    for op, expected in zip(ops, taken, strict=True):
        value = first_of(op.tensor_contents)
        assert torch.equal(value, expected), op.label
        if not expected.requires_grad:  # the count of batches
            assert not value.requires_grad and op.name == "add_"
            continue
        found = gradients(value, model)
        assert any(gradient is not None for gradient in found), f"{op.label} reaches no parameter"
        assert same(found, gradients(expected, reference)), op.label
        assert op.record.outputs[0].requires_grad and value.requires_grad and not value.is_leaf


def test_what_is_printed_is_the_node_that_made_the_value():
    history = tl.log_forward_pass(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), torch.rand(1, 3, 5, 5))
    assert history["conv2d_1"].record.grad_fn == "ConvolutionBackward0"
    assert "gradfunc=ConvolutionBackward0" in str(history["conv2d_1"])

    class Fills(nn.Module):
        def forward(self, x):
            buffer = torch.zeros(3)
            buffer[0] = x
            return buffer

    history = tl.log_forward_pass(Fills(), torch.ones((), requires_grad=True))
    assert history["zeros_1"].record.grad_fn == "" and not history["zeros_1"].tensor_contents.requires_grad
    assert history["setitem_1"].record.grad_fn == "CopySlices"


def run(program, *inputs, **options):
    class Model(nn.Module):
        def forward(self, *inputs):
            return program(*inputs)

    return tl.log_forward_pass(Model(), inputs, **options)


def test_a_view_goes_on_to_the_graph_of_the_base_before_the_write():
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def program(w):
        y = w * 2
        view = y[1:]
        y.mul_(5)
        return y + 0 * view.sum()

    history = run(program, w)
    (gradient,) = torch.autograd.grad(history["getitem_1"].tensor_contents.sum(), w, retain_graph=True)
    assert gradient.tolist() == [0, 2, 2]
    (gradient,) = torch.autograd.grad(history["mul_2"].tensor_contents.sum(), w)
    assert gradient.tolist() == [10, 10, 10]


@pytest.mark.parametrize("how", ["no_grad", "data", "numpy", "detach"])
def test_writes_beside_autograd_leave_the_value_before_them_with_its_graph(how):
    w = torch.tensor([1.0, 2.0], requires_grad=True)

    def program(w):
        y = w * 3
        if how == "no_grad":
            with torch.no_grad():
                y.zero_()
        elif how == "data":
            y.data.zero_()
        elif how == "detach":
            y.detach().zero_()
        else:
            y.detach().numpy()[:] = 0
        return y + 1

    history = run(program, w)
    value = history["mul_1"].tensor_contents
    assert value.tolist() == [3, 6]
    (gradient,) = torch.autograd.grad(value.sum(), w)
    assert gradient.tolist() == [3, 3]


def test_a_leaf_written_without_grad_gets_gradients_from_the_value_it_had():
    linear = nn.Linear(2, 2)
    with tl.recording(linear) as history:
        before = linear.weight.detach().clone()
        (linear(torch.ones(2)).sum()).backward()
        with torch.no_grad():
            linear.weight.sub_(linear.weight.grad)
    value = history.trace.recorder.value(~0)
    assert torch.equal(value, before) and value.requires_grad
    linear.weight.grad = None
    (value * 3).sum().backward()
    assert linear.weight.grad.eq(3).all()


@pytest.mark.parametrize("inference", [False, True])
def test_without_grad_nothing_requires_grad(inference):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
    with torch.inference_mode(inference), torch.no_grad():
        history = tl.log_forward_pass(model, torch.rand(1, 3, 5, 5))
        value = history["conv2d_1"].tensor_contents
    assert not value.requires_grad and value.lt(0).any()


def test_a_parameter_written_in_inference_mode_is_still_copied():
    linear = nn.Linear(2, 2)
    with torch.inference_mode(), tl.recording(linear) as history:
        linear(torch.ones(2))
        before = linear.bias.clone()
        with torch.inference_mode(False), torch.no_grad():
            linear.bias.add_(1)
    assert torch.equal(history.trace.recorder.value(~1), before)


@pytest.mark.parametrize(
    "save",
    [
        tl.Save("all", dtype=torch.float64),
        tl.Save("all", device="cpu"),
        tl.Save("all", transform=lambda t: t[:1]),
        tl.Save("all", guard="clone"),
        tl.Save(["conv2d_1"]),
        tl.Save([-4]),
    ],
    ids=["dtype", "device", "transform", "clone", "named", "position"],
)
def test_values_kept_in_another_form_keep_their_graph(save):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten())
    history = tl.log_forward_pass(model, torch.rand(2, 3, 5, 5), layers_to_save=save)
    value = history["conv2d_1"].tensor_contents
    assert value.lt(0).any(), "the value before the write"
    value.sum().backward()
    assert model[0].weight.grad.ne(0).any()


def test_detached_values_have_no_graph():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
    for save in (tl.Save("all", detach=True), tl.Save("all", detach=True, guard="clone")):
        value = tl.log_forward_pass(model, torch.rand(1, 3, 5, 5), layers_to_save=save)["conv2d_1"].tensor_contents
        assert not value.requires_grad and value.lt(0).any()


def test_gradients_that_are_listened_for_arrive_when_backward_starts_at_such_a_value():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    history = tl.log_forward_pass(model, torch.rand(2, 3), save_gradients=True)
    history.backward(history["linear_1"].tensor_contents.square().sum(), retain_graph=True)
    assert torch.equal(history["linear_1"].grad_contents, 2 * history["linear_1"].tensor_contents)
    assert model[0].weight.grad is not None


def test_a_value_whose_graph_could_not_be_kept_says_so_in_backward():
    from seams import cut_off

    value = cut_off(torch.ones(3))
    assert value.requires_grad
    with pytest.raises(RuntimeError, match="graph could not be kept"):
        value.sum().backward()


def test_at_the_aten_level_a_value_keeps_its_graph_or_says_that_it_cannot():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    history = tl.log_forward_pass(model, torch.rand(2, 3), level="aten")
    history["linear_1"].tensor_contents.sum().backward()
    assert model[0].weight.grad is not None


# -- random programs -------------------------------------------------------------------------------------------------

STEPS = {
    "mul": lambda live, i, j: live.append(live[i] * 1.5),
    "add": lambda live, i, j: live.append(live[i] + live[j].sum()),
    "row": lambda live, i, j: live.append(live[i][j % live[i].shape[0] :][:1]),
    "flat": lambda live, i, j: live.append(live[i].reshape(1, -1)),
    "transpose": lambda live, i, j: live.append(live[i].T),
    "clone": lambda live, i, j: live.append(live[i].clone()),
    "zeros": lambda live, i, j: live.append(torch.zeros(2, 3, dtype=torch.float64)),
    "add_": lambda live, i, j: live[i].add_(2.0),
    "mul_": lambda live, i, j: live[i].mul_(0.5),
    "relu_": lambda live, i, j: torch.relu_(live[i]),
    "set": lambda live, i, j: live[i].__setitem__((slice(None), 0), live[j].sum()),
    "set_cell": lambda live, i, j: live[i].__setitem__((j % live[i].shape[0], 0), live[j].sum()),
    "add_cell": lambda live, i, j: live[i][-1:, :1].add_(1.0),
    "no_grad": lambda live, i, j: torch.no_grad()(live[i].add_)(1.0),
    "data": lambda live, i, j: live[i].data.mul_(3.0),
}
STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9))


@given(st.lists(STEP, min_size=1, max_size=15), st.sampled_from([2, 20]))
@settings(max_examples=150)
def test_in_any_program_a_value_has_the_gradient_of_a_clone_taken_when_it_was_made(steps, rows):
    """The clones are taken in the very run that is recorded, out of the recorder's sight."""
    w = (torch.arange(3 * rows, dtype=torch.float64).reshape(rows, 3) - 2).requires_grad_()
    taken = {}

    def take(op):
        with torch.enable_grad():
            taken[op.index] = recorder.outputs(op.index)[0].clone()

    small = mock.patch.object(copy_on_write, "SMALL_BYTES", 1 << 14 if rows == 2 else 0)
    with small, tl.recording() as history:
        recorder = history.trace.recorder
        history.follow(take)
        live = [w * 1]
        for name, i, j in steps:
            STEPS[name](live, i % len(live), j % len(live))
            live = live[-5:]
    assert len(taken) == len(history)
    for node, clone in taken.items():
        value = history.trace.value(node, 0)
        assert torch.equal(value, clone) and value.requires_grad == clone.requires_grad, node
        if clone.requires_grad:
            found, expected = [_gradient(tensor, w) for tensor in (value, clone)]
            if isinstance(found, str) and recorder.outputs(node)[0]._is_view():
                continue  # other cells of its base were written: torch itself gives such a view the base's new history
            alike = torch.equal(found, expected) if isinstance(found, torch.Tensor) else found == expected
            assert alike, (node, found, expected)


def _gradient(tensor, w):
    try:
        return torch.autograd.grad(tensor.square().sum(), w, retain_graph=True, allow_unused=True)[0]
    except RuntimeError as error:
        return str(error)[:60]  # relu_ of what was written later: torch refuses, and must refuse both

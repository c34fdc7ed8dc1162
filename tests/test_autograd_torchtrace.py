"""What users of torchtrace know: tracer, layers, models, operators of their own, weights in files."""

from __future__ import annotations

import copy
import pickle
import random
import re

import numpy as np
import pytest
import torch

import torcheer.autograd as torchtrace
from torcheer.autograd import base, init, nn, optim, record
from torcheer.autograd.base import Back, End, Input, Operator, Pass
from torcheer.autograd.nn import Conv2d, Linear, Model, ReLU, Sequential
from torcheer.autograd.nodes import node_of
from torcheer.autograd.tensor import tracer
from torcheer.errors import BadArgument, GraphFreed, MissingRule, NotTraced, RuleMistake, WrongInputs

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(ours.detach().as_subclass(torch.Tensor), theirs, rtol=tolerance, atol=tolerance)


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# The seed's snippets, with only the imports changed

A = """
import torchtrace
from torchtrace import nn

a = torchtrace.tracer([1,2,3,4])
a.requires_grad_()
b = a.Sum()
b.backward()
print(a.grad)
"""

B = """
import torch
import torchtrace
import torchtrace.nn as nn
from torchtrace.nn import Linear, ReLU
import torchtrace.optim as optim

model = nn.Sequential(
        Linear(8,256),
        ReLU(),
        Linear(256,128),
        ReLU(),
        Linear(128,64),
        ReLU(),
        Linear(64, 4),
    )
print(model)
optimizer = optim.RMSprop(model.parameters(), lr=5e-4)
mse = nn.MSE()

x = torch.rand(16,8).float()
target = torch.rand(16,1)

for i in range(10):
        out = model(x)
        _, action = out.max(1)
        out = out.Gather(action)
        loss = mse(out, target)
        print(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

C = """
import torch
from torchtrace.nn import Conv2d, ReLU, Linear, Model, Sequential

class myConv(Model):
    def __init__(self):
        self.conv = Sequential(
            Conv2d(3, 8, kernel_size=8, stride=4), ReLU(),
            Conv2d(8, 4, kernel_size=4, stride=2), ReLU(),
            Conv2d(4, 2, kernel_size=3, stride=1), ReLU(),
        )
        self.fc = Linear(7*7*2, 1)
        super(myConv, self).__init__()

    def construct(self):
        ops = [self.conv, self.fc]
        return ops

    def forward(self, x):
        x = self.conv(x)
        x = x.View(x.shape[0], -1)
        return self.fc(x)

model_trace = myConv()
print(model_trace)
for para in model_trace.parameters():
        para.data.fill_(0.001)
x = torch.rand(3, 3, 84, 84).float()
out = model_trace(x).Sum()
out.backward(show=True)
"""

C_PRINTS = """\
Sequence(
    (0):Sequence(
        (0):Conv2d 3 -> 8
        (1):ReLU()
        (2):Conv2d 8 -> 4
        (3):ReLU()
        (4):Conv2d 4 -> 2
        (5):ReLU()
    )
    (1):Linear layer (98 X 1)
)
BackProp:
↘︎ Sum()
↘︎ Linear layer (98 X 1)
↘︎ View((3, -1))
↘︎ ReLU()
↘︎ Conv2d 4 -> 2   GRAD:torch.Size([3, 2, 7, 7]) -> torch.Size([3, 4, 9, 9])
↘︎ ReLU()
↘︎ Conv2d 8 -> 4   GRAD:torch.Size([3, 4, 9, 9]) -> torch.Size([3, 8, 20, 20])
↘︎ ReLU()
↘︎ Conv2d 3 -> 8   GRAD:torch.Size([3, 8, 20, 20]) -> torch.Size([3, 3, 84, 84])
↘︎ Input
"""


def run(snippet: str) -> dict[str, object]:
    """Run a snippet of torchtrace's with its import lines changed, and nothing else."""
    code = re.sub(r"^import torchtrace$", "import torcheer.autograd as torchtrace", snippet, flags=re.MULTILINE)
    code = re.sub(r"^(from|import) torchtrace\b", r"\1 torcheer.autograd", code, flags=re.MULTILINE)
    names: dict[str, object] = {"__name__": "snippet"}
    exec(compile(code, "snippet", "exec"), names)
    return names


def test_snippet_a_prints_what_the_seed_prints(capsys):
    run(A)
    assert capsys.readouterr().out == "tensor([1., 1., 1., 1.])\n"


def test_snippet_b_prints_its_model_and_ten_losses_that_fall(capsys):
    torchtrace.set_seed(0)
    run(B)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:9] == [
        "Sequence(",
        "    (0):Linear layer (8 X 256)",
        "    (1):ReLU()",
        "    (2):Linear layer (256 X 128)",
        "    (3):ReLU()",
        "    (4):Linear layer (128 X 64)",
        "    (5):ReLU()",
        "    (6):Linear layer (64 X 4)",
        ")",
    ]
    losses = [float(re.fullmatch(r"tracer\((.+)\)", line)[1]) for line in lines[9:]]
    assert len(losses) == 10
    assert losses[-1] < losses[0] / 2


def test_snippet_c_prints_what_the_seed_prints(capsys):
    run(C)
    assert capsys.readouterr().out == C_PRINTS


def test_a_model_prints_the_same_when_init_is_called_first(capsys):
    moved = C.replace("        super(myConv, self).__init__()\n", "")
    run(moved.replace("def __init__(self):\n", "def __init__(self):\n        super().__init__()\n"))
    assert capsys.readouterr().out == C_PRINTS


# tracer


def test_sum_view_and_gather_have_torchtraces_shapes():
    a = tracer([[1, 2, 3], [4, 5, 6]])
    assert a.Sum().tolist() == [21.0]
    assert a.View(3, -1).shape == (3, 2)
    assert a.View((6,)).shape == (6,)
    assert a.Gather(torch.tensor([2, 0])).tolist() == [[3.0], [4.0]]


def test_gather_sends_its_gradient_to_the_entries_it_picked():
    a = tracer(torch.zeros(2, 3)).requires_grad_()
    a.Gather(torch.tensor([2, 0])).backward(gradient=torch.tensor([[5.0], [7.0]]))
    assert a.grad.tolist() == [[0, 0, 5], [7, 0, 0]]


def test_a_tracer_prints_as_torch_prints_but_says_tracer_and_stays_aligned():
    assert repr(tracer([[1, 2], [3, 4]])) == "tracer([[1., 2.],\n        [3., 4.]])"
    assert repr(tracer([1.0]).double()) == "tracer([1.], dtype=torch.float64)"


def test_a_gradient_prints_as_a_plain_tensor():
    a = tracer([1.0, 2.0]).requires_grad_()
    (a * a).Sum().backward()
    assert repr(a.grad) == "tensor([2., 4.])"


@pytest.mark.parametrize("data", [[1, 2], [1.0, 2.0], np.array([1, 2]), np.array([1.0, 2.0]), torch.tensor([1, 2])])
def test_a_tracer_is_made_of_lists_arrays_and_tensors(data):
    a = tracer(data)
    assert a.is_floating_point()
    assert a.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_type_is_kept_and_so_is_its_gradient(dtype):
    a = tracer(torch.tensor([1.0, 2.0], dtype=dtype)).requires_grad_()
    (a * 2).Sum().backward()
    assert (a.dtype, a.grad.dtype, a.grad.tolist()) == (dtype, dtype, [2.0, 2.0])


def test_complex_numbers_are_refused():
    with pytest.raises(BadArgument, match=r"real numbers, and this is torch.complex64"):
        tracer(torch.ones(2, dtype=torch.complex64))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_everything_stays_on_the_gpu():
    model = Sequential(Linear(3, 4), ReLU(), Linear(4, 1)).to("cuda")
    optimizer = optim.Adam(model.parameters())
    loss = nn.MSE()(model(torch.rand(5, 3, device="cuda")), torch.rand(5, 1, device="cuda"))
    loss.backward()
    optimizer.step()
    assert {one.device.type for one in (*model.parameters(), *(one.grad for one in model.parameters()))} == {"cuda"}


def test_ordinary_torch_functions_on_tracers_are_traced():
    a = tracer([0.5, 1.0]).requires_grad_()
    torch.exp(a).mul(3).sum().backward()
    assert torch.equal(a.grad, 3 * torch.exp(torch.tensor([0.5, 1.0])))


def test_torchs_autograd_has_no_part_in_it():
    a = tracer([1.0, 2.0]).requires_grad_()
    b = nn.Linear(2, 2)(a * 2).Sum()
    with torch._C.DisableTorchFunction():  # or it is our own answer
        assert b.grad_fn is None
        assert not b.as_subclass(torch.Tensor).requires_grad


def test_a_result_says_that_it_requires_a_gradient():
    a = tracer([1.0]).requires_grad_()
    assert (a * 2).requires_grad
    assert not (a * 2).is_leaf
    assert not (a * 2).detach().requires_grad
    assert not tracer([1.0]).requires_grad


def test_a_second_backward_adds_to_the_first():
    a = tracer([1.0]).requires_grad_()
    for _ in range(2):
        a.Sum().backward()
    assert a.grad.tolist() == [2.0]


def test_a_tensor_used_twice_gets_both_gradients():
    a = tracer([3.0]).requires_grad_()
    (a.View(1) * a.Sum()).backward()
    assert a.grad.tolist() == [6.0]


def test_backward_takes_the_gradient_first_as_torch_does():
    a = tracer([1.0, 2.0]).requires_grad_()
    (a * 2).backward(torch.tensor([1.0, 10.0]))
    assert a.grad.tolist() == [2.0, 20.0]


def test_retain_graph_allows_a_second_pass():
    a = tracer([1.0]).requires_grad_()
    b = (a * a).Sum()
    b.backward(retain_graph=True)
    b.backward()
    assert a.grad.tolist() == [4.0]
    with pytest.raises(GraphFreed, match="retain_graph=True"):
        b.backward()


def test_create_graph_gives_gradients_of_gradients():
    a = tracer([2.0]).requires_grad_()
    (a**3).Sum().backward(create_graph=True)
    slope, a.grad = a.grad, None
    slope.Sum().backward()
    assert a.grad.tolist() == [12.0]


def test_backward_from_many_numbers_says_what_to_do():
    a = tracer([1.0, 2.0]).requires_grad_()
    with pytest.raises(BadArgument, match=r"one number, and this has shape \(2,\): reduce it with .sum\(\)"):
        (a * 2).backward()


def test_backward_from_something_untraced_says_so():
    with pytest.raises(NotTraced, match="nothing that asks for a gradient leads to this tensor"):
        tracer([1.0]).Sum().backward()


def test_writing_to_a_tracer_and_to_views_of_it_is_traced():
    def compute(a):
        b = a * 2
        row = b[0]
        row += a[1]
        flat = b.view(-1)
        flat[1] *= 3
        return (b * b).sum() + (flat**3).sum()

    ours, theirs = tracer(torch.arange(6.0).view(2, 3)).requires_grad_(), torch.arange(6.0).view(2, 3).requires_grad_()
    compute(ours).backward()
    compute(theirs).backward()
    assert torch.equal(ours.grad, theirs.grad)


def test_a_computed_tracer_cannot_stop_asking_but_can_be_detached():
    b = tracer([1.0]).requires_grad_() * 2
    with pytest.raises(BadArgument, match=r"detach\(\) gives it without its past"):
        b.requires_grad_(False)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_tracer_is_a_leaf_that_asks_as_the_first_did(again):
    a = tracer([1.0, 2.0]).requires_grad_()
    a.name = "a"
    b = again(a)
    (b * b).Sum().backward()
    assert (type(b), b.name, b.grad.tolist(), a.grad) == (tracer, "a", [2.0, 4.0], None)


def test_a_tracer_of_one_number_formats_as_a_number():
    assert f"{tracer(1.5) * 2:.2f}" == "3.00"


def test_a_tracer_of_an_array_shares_its_memory():
    array = np.zeros(3, np.float32)
    torchtrace.from_numpy(array).add_(1)
    assert array.tolist() == [1, 1, 1]


def test_tracers_and_record_go_together():
    a = tracer([1.0, 2.0]).requires_grad_()
    layer = torch.nn.Linear(2, 1)
    with record():
        layer(a * 2).sum().backward()
    assert torch.allclose(a.grad, 2 * layer.weight.detach()[0])
    assert layer.weight.grad.tolist() == [[2.0, 4.0]]


# Layers


def twin(layer, kind, *args, **kwargs):
    """torch's layer with the same weights."""
    made = kind(*args, **kwargs)
    made.load_state_dict({name: weight.detach().as_subclass(torch.Tensor) for name, weight in
                          (("weight", layer.weight), ("bias", layer.bias)) if weight is not None})  # fmt: skip
    return made


@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 4, 5, 3)])
def test_linear_takes_any_number_of_axes_and_has_torchs_gradients(shape, doubles):
    layer = Linear(3, 4)
    theirs = twin(layer, torch.nn.Linear, 3, 4)
    x = torch.randn(shape)
    (layer(x) ** 2).sum().backward()
    (theirs(x) ** 2).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)
    assert close(layer.bias.grad, theirs.bias.grad)


@pytest.mark.parametrize(
    "stride, padding, shape", [(1, 0, (2, 3, 9, 9)), (2, 1, (2, 3, 10, 11)), (3, (2, 1), (3, 9, 9))]
)
def test_conv2d_has_torchs_gradients(stride, padding, shape, doubles):
    layer = Conv2d(3, 4, 3, stride, padding)
    theirs = twin(layer, torch.nn.Conv2d, 3, 4, 3, stride, padding)
    x = torch.randn(shape)
    ours_x, theirs_x = tracer(x).requires_grad_(), x.clone().requires_grad_()
    (layer(ours_x) ** 2).sum().backward()
    (theirs(theirs_x) ** 2).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)
    assert close(layer.bias.grad, theirs.bias.grad)
    assert close(ours_x.grad, theirs_x.grad)


@pytest.mark.parametrize("make", [lambda home: home.Linear(7, 5), lambda home: home.Conv2d(3, 4, 5)])
def test_the_same_seed_gives_torchs_own_first_weights(make):
    torch.manual_seed(3)
    ours = make(nn)
    torch.manual_seed(3)
    theirs = make(torch.nn)
    assert close(ours.weight, theirs.weight)
    assert close(ours.bias, theirs.bias)


def test_layers_without_bias_have_one_weight():
    assert len(list(Linear(2, 3, bias=False).parameters())) == len(list(Conv2d(2, 3, 1, bias=False).parameters())) == 1


def test_weights_are_leaves_that_ask():
    assert all(type(one) is tracer and one.is_leaf and one.requires_grad for one in Conv2d(2, 3, 2).parameters())


def test_a_layer_accepts_a_plain_tensor_and_returns_a_tracer():
    assert type(ReLU()(torch.tensor([-1.0, 1.0]))) is tracer


def test_a_layer_used_twice_gets_both_gradients(doubles):
    layer = Linear(3, 3)
    theirs = twin(layer, torch.nn.Linear, 3, 3)
    x = torch.randn(2, 3)
    layer(layer(x)).Sum().backward()
    theirs(theirs(x)).sum().backward()
    assert close(layer.weight.grad, theirs.weight.grad)


def test_two_layers_may_share_a_weight():
    first, second = Linear(3, 3), Linear(3, 3)
    second.weight = first.weight
    assert len(list(Sequential(first, second).parameters())) == 3


def test_nothing_is_recorded_under_no_grad():
    with torch.no_grad():
        out = Sequential(Linear(2, 2), ReLU())(torch.ones(2))
    assert node_of(out) is None
    assert type(out) is tracer


def test_linear_says_how_many_features_it_takes():
    with pytest.raises(
        WrongInputs, match=r"Linear layer \(8 X 4\) takes 8 features .* shape \(3, 5\).* or Linear\(5, 4\)"
    ):
        Linear(8, 4)(torch.ones(3, 5))


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((4, 6), r"View\(-1, 3, height, width\) makes images of it"),
        ((2, 9, 9, 3), r"channels stand last, move them with x.movedim\(-1, -3\)"),
        ((2, 4, 9, 9), r"Conv2d\(4, …\) would take it"),
        ((1, 1, 3, 9, 9), "makes images of it"),
    ],
)
def test_conv2d_says_which_images_it_takes(shape, hint):
    with pytest.raises(WrongInputs, match=rf"Conv2d 3 -> 8 takes images as \(batch, 3, height, width\), .*{hint}"):
        Conv2d(3, 8, 3)(torch.ones(shape))


def test_gather_says_how_many_numbers_it_takes():
    with pytest.raises(WrongInputs, match=r"one whole number for each of the 2 rows of \(2, 3\), .* shape \(5,\)"):
        tracer(torch.zeros(2, 3)).Gather(torch.zeros(5, dtype=torch.int64))


# Losses


LOSSES = [
    (nn.MSE(), torch.nn.functional.mse_loss, lambda: (torch.randn(6, 2), torch.randn(6, 2))),
    (nn.Huber(0.7), lambda x, t: torch.nn.functional.huber_loss(x, t, delta=0.7),
     lambda: (torch.randn(6, 2), torch.randn(6, 2))),
    (nn.BCE(), torch.nn.functional.binary_cross_entropy, lambda: (torch.rand(6, 2), torch.rand(6, 2))),
    (nn.BCEWithLogits(), torch.nn.functional.binary_cross_entropy_with_logits,
     lambda: (torch.randn(6, 2), torch.rand(6, 2))),
    (nn.CrossEntropy(), torch.nn.functional.cross_entropy, lambda: (torch.randn(6, 4), torch.randint(4, (6,)))),
    (nn.CrossEntropy(), torch.nn.functional.cross_entropy, lambda: (torch.randn(6, 4), torch.rand(6, 4))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "torchs", "inputs"), LOSSES, ids=lambda one: str(one) if isinstance(one, Operator) else ""
)
def test_a_loss_has_torchs_value_and_gradient(loss, torchs, inputs, doubles):
    x, target = inputs()
    ours, theirs = tracer(x).requires_grad_(), x.clone().requires_grad_()
    value, wanted = loss(ours, target), torchs(theirs, target)
    value.backward()
    wanted.backward()
    assert close(value, wanted.detach())
    assert close(ours.grad, theirs.grad)


@pytest.mark.parametrize("loss", [nn.MSE(), nn.Huber(), nn.BCE(), nn.BCEWithLogits()], ids=str)
def test_a_loss_refuses_to_compare_each_with_each(loss):
    with pytest.raises(WrongInputs, match=r"target has shape \(4,\), the answer \(4, 1\), .* target.view\(4, 1\)"):
        loss(tracer(torch.full((4, 1), 0.5)), torch.rand(4))


def test_a_loss_accepts_one_target_for_all():
    assert nn.MSE()(tracer([1.0, 3.0]), torch.tensor(1.0)).item() == 2.0


# Models


class Branching(Model):
    """Two paths that meet, a layer used twice, and torch's own layer among ours."""

    def __init__(self):
        self.first, self.shared, self.torchs = Linear(4, 4), Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.shared(torch.relu(x)) + self.shared(self.torchs(x).tanh())


def test_a_model_may_branch_and_hold_torchs_layers(doubles):
    model = Branching()
    x = torch.randn(3, 4)
    model(x).Sum().backward()
    leaves = [one.detach().as_subclass(torch.Tensor).clone().requires_grad_() for one in model.parameters()]
    first, first_bias, shared, shared_bias, torchs, torchs_bias = leaves
    h = x @ first.T + first_bias
    (torch.relu(h) @ shared.T + torch.tanh(h @ torchs.T + torchs_bias) @ shared.T + 2 * shared_bias).sum().backward()
    assert len(leaves) == 6
    assert all(close(ours.grad, theirs.grad) for ours, theirs in zip(model.parameters(), leaves))


def test_without_construct_a_model_prints_every_layer_it_holds():
    assert str(Branching()).startswith(
        "Sequence(\n    (0):Linear layer (4 X 4)\n    (1):Linear layer (4 X 4)\n    (2):"
    )


def test_a_name_that_was_set_is_printed():
    assert str(Sequential(ReLU().set_name("bend"))) == "Sequence(\n    (0):bend\n)"
    assert str(Sequential(ReLU()).set_name("Net")) == "Net(\n    (0):ReLU()\n)"


def test_eval_and_train_reach_every_part():
    model = Branching().eval()
    assert not any(part.training for part in (model, model.first, model.torchs))
    model.train()
    assert all(part.training for part in (model, model.first, model.torchs))


def test_a_sequence_can_be_counted_and_cut():
    model = Sequential([Linear(2, 3), ReLU(), Linear(3, 1)])
    assert len(model) == 3
    assert str(model[1:]) == "Sequence(\n    (0):ReLU()\n    (1):Linear layer (3 X 1)\n)"
    assert [type(one) for one in model] == [Linear, ReLU, Linear]


def test_a_sequence_refuses_what_cannot_be_called():
    with pytest.raises(BadArgument, match="number 1 is 3, which cannot be called"):
        Sequential(ReLU(), 3)


def test_weights_go_from_one_model_to_another():
    first, second = Sequential(Linear(2, 3), Linear(3, 1)), Sequential(Linear(2, 3), Linear(3, 1))
    second.load_seq_list(first.seq_list())
    x = torch.rand(5, 2)
    assert torch.equal(first(x), second(x))


def test_a_list_of_weights_is_a_copy():
    layer = Linear(2, 2)
    kept = layer.seq_list()
    layer.weight.data.fill_(7)
    assert not (kept[0] == 7).any()
    assert type(kept[0]) is torch.Tensor


def test_a_frozen_weight_keeps_its_place():
    layer = Linear(2, 2)
    layer.weight.requires_grad_(False)
    layer(torch.ones(2)).Sum().backward()
    assert layer.weight.grad is None
    assert len(layer.seq_list()) == 2


def test_weights_of_another_shape_are_refused():
    with pytest.raises(BadArgument, match=r"tensor 0 has shape \(3, 2\), its weight \(2, 3\)"):
        Linear(3, 2).load_seq_list(Linear(2, 3).seq_list())


def test_a_list_of_another_length_is_refused():
    with pytest.raises(BadArgument, match="2 tensors for 4 weights; is the list of this model"):
        Sequential(Linear(2, 2), Linear(2, 2)).load_seq_list(Linear(2, 2).seq_list())


def test_a_model_can_be_converted_and_its_optimizer_still_knows_it():
    model = Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    model.to(torch.float64)
    model(torch.ones(2, dtype=torch.float64)).Sum().backward()
    before = model.bias.tolist()
    optimizer.step()
    assert model.weight.dtype == torch.float64
    assert model.bias.tolist() == [one - 1 for one in before]


def test_a_copied_model_learns_on_its_own():
    model = Sequential(Linear(2, 2))
    other = copy.deepcopy(model)
    other(torch.ones(2)).Sum().backward()
    assert model[0].weight.grad is None
    assert other[0].weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


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


# Numbers to begin with


@pytest.mark.parametrize(
    "name", ["kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "uniform_", "normal_"]
)
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 3, 2)])
def test_the_same_seed_fills_a_tensor_as_torch_does(name, shape):
    torch.manual_seed(1)
    ours = getattr(init, name)(tracer(torch.empty(shape)))
    torch.manual_seed(1)
    assert close(ours, getattr(torch.nn.init, name)(torch.empty(shape)), 1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "linear", "sigmoid", "selu", "leaky_relu"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out"])
def test_kaiming_makes_up_for_each_nonlinearity(name, mode):
    torch.manual_seed(1)
    ours = init.kaiming_normal_(torch.empty(5, 7), 0.1, mode, name)
    torch.manual_seed(1)
    assert close(ours, torch.nn.init.kaiming_normal_(torch.empty(5, 7), 0.1, mode, name), 1e-6)


def test_fans_count_what_goes_in_and_out():
    assert init.calculate_fan(torch.empty(8, 3, 5, 5)) == (75, 200)


def test_a_vector_has_no_fan():
    with pytest.raises(BadArgument, match=r"shape \(3,\) joins no inputs to outputs"):
        init.kaiming_normal_(torch.empty(3))


def test_an_unknown_nonlinearity_or_mode_is_refused():
    with pytest.raises(BadArgument, match="no gain is known for 'sine'; there are leaky_relu"):
        init.kaiming_normal_(torch.empty(3, 3), nonlinearity="sine")
    with pytest.raises(BadArgument, match=r"mode is 'fan_in'.* not 'sideways'"):
        init.kaiming_normal_(torch.empty(3, 3), mode="sideways")


def test_weights_can_be_filled_while_they_ask():
    layer = Linear(4, 4)
    assert init.uniform_(layer.weight, 2, 3) is layer.weight
    assert layer.weight.requires_grad and layer.weight.min() >= 2


def test_a_seed_repeats_python_numpy_and_torch():
    def draw():
        torchtrace.set_seed(5)
        return random.random(), np.random.rand(), torch.rand(1).item()

    assert draw() == draw()


# Files


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_every_type_comes_back_from_a_file(dtype, tmp_path):
    given = [torch.tensor([[0.5, 1.0], [2.0, 0.0]]).to(dtype), torch.tensor(1.0).to(dtype), torch.empty(0, 3).to(dtype)]
    torchtrace.save(tmp_path / "weights", given)
    found = torchtrace.load(tmp_path / "weights")
    assert [(one.dtype, one.shape, one.double().tolist()) for one in found] == [
        (one.dtype, one.shape, one.double().tolist()) for one in given
    ]


def test_a_model_comes_back_from_a_file_of_exactly_that_name(tmp_path):
    first, second = Sequential(Conv2d(1, 2, 3), ReLU()), Sequential(Conv2d(1, 2, 3), ReLU())
    torchtrace.save(tmp_path / "model", first.seq_list())
    second.load_seq_list(torchtrace.load(tmp_path / "model"))
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters()))


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    torchtrace.save(tmp_path / "model", [torch.ones(2)])
    with pytest.raises(Exception, match=r"storage|meta|device"):
        torchtrace.save(tmp_path / "model", [torch.ones(2, device="meta")])
    assert torchtrace.load(tmp_path / "model")[0].tolist() == [1.0, 1.0]


def other_files(folder):
    (folder / "text").write_text("hello")
    (folder / "empty").write_bytes(b"")
    torch.save({"a": torch.ones(2)}, folder / "torchs")
    (folder / "pickle").write_bytes(pickle.dumps([1, 2]))
    np.save(folder / "array.npy", np.ones(3))
    np.savez(folder / "arrays.npz", a=np.ones(3))
    np.savez(folder / "objects.npz", torcheer=np.array([{}], dtype=object))
    torchtrace.save(folder / "cut", [torch.ones(100)])
    (folder / "cut").write_bytes((folder / "cut").read_bytes()[:300])
    return sorted(folder.iterdir())


def test_a_file_that_is_not_ours_is_refused(tmp_path):
    files = other_files(tmp_path)
    assert len(files) == 8
    for file in files:
        with pytest.raises(BadArgument, match=f"{file.name}' is not a file that torcheer.autograd.save wrote"):
            torchtrace.load(file)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        torchtrace.load(tmp_path / "nowhere")


def test_torchs_weights_fit_our_layers(tmp_path):
    theirs = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    torch.save(theirs.state_dict(), tmp_path / "theirs.pt")
    ours = Sequential(Conv2d(2, 3, 2), ReLU(), nn.View(5, -1), Linear(12, 2))
    ours.load_seq_list(torchtrace.load_from_torch(tmp_path / "theirs.pt"))
    x = torch.rand(5, 2, 3, 3)
    assert close(ours(x), theirs(x), 1e-6)


def test_torchs_weights_come_in_the_order_that_was_asked(tmp_path):
    torch.save({"a": torch.zeros(1), "b": torch.ones(1)}, tmp_path / "two.pt")
    assert [one.item() for one in torchtrace.load_from_torch(tmp_path / "two.pt", ["b", "a"])] == [1.0, 0.0]
    with pytest.raises(BadArgument, match="has no 'c'; it has a, b"):
        torchtrace.load_from_torch(tmp_path / "two.pt", ["c"])


def test_a_file_of_torchs_with_more_than_weights_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "run.pt")
    with pytest.raises(BadArgument, match="holds no state_dict"):
        torchtrace.load_from_torch(tmp_path / "run.pt")
    torch.save(torch.nn.Linear(1, 1), tmp_path / "code.pt")
    with pytest.raises(pickle.UnpicklingError):
        torchtrace.load_from_torch(tmp_path / "code.pt")


def test_torchtraces_names_stand_where_its_users_look():
    assert torchtrace.Sequential is nn.Sequential
    assert torchtrace.tracer is tracer
    assert base.Operator.Pass is Pass
    assert {one.__name__ for one in (torchtrace.nn, torchtrace.optim, torchtrace.init, torchtrace.base)} == {
        f"torcheer.autograd.{name}" for name in ("nn", "optim", "init", "base")
    }

"""The seed's snippets with only their imports changed, and tracer."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
import torch

import torcheer.autograd as torchtrace
from torcheer.autograd import base, nn, optim, record, tracer
from torcheer.autograd.base import Pass
from torcheer.autograd.nn import Linear, ReLU, Sequential
from torcheer.errors import BadArgument, GraphFreed, NotTraced

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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


def test_torchtraces_names_stand_where_its_users_look():
    assert torchtrace.Sequential is nn.Sequential
    assert torchtrace.tracer is tracer
    assert base.Operator.Pass is Pass
    assert {one.__name__ for one in (torchtrace.nn, torchtrace.optim, torchtrace.init, torchtrace.base)} == {
        f"torcheer.autograd.{name}" for name in ("nn", "optim", "init", "base")
    }

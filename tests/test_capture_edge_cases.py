"""Corners of torch that models do visit: each must be recorded and replay."""

import copy

import pytest
import torch
from models import Does
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, rnn

import torcheer as tl

X = torch.linspace(-2, 2, 32).reshape(4, 8)


@torch.library.custom_op("torcheer_tests::wave", mutates_args=())
def wave(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@torch.library.custom_op("torcheer_tests::bump_", mutates_args={"x"})
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


def custom_operators(x):
    y = wave(x)
    bump_(y)
    return y * 2


def writes_rows(x):
    rows = torch.zeros(4, 8)
    for i in range(4):
        rows[i] = x[i] * 2
    return rows


def view_of_a_view(x):
    base = x.clone()
    view = base.view(-1)[3:9].view(2, 3)
    base.mul_(2)
    view.add_(1)
    return base.sum() + view.sum()


def new_data(x):
    y = x.clone()
    y.data = x * 3
    return y * 1


def gradient_inside(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad((x**2).sum(), x, create_graph=True)[0]


def overwrites_its_target(x):
    target = torch.randn(4, 8) * 3  # every element of it is written before anything reads one
    return target.scatter_(1, torch.arange(8).expand(4, 8), x) + 1


def writes_by_places_without_dimensions(x):
    scores = torch.full((2, 2, 5), -9.0)
    for row, column in torch.tensor([[1, 3], [0, 2], [1, 3]]):
        before = scores[row, :, column].view(2, 1)
        scores[row, :, column] = torch.cat([before, x[:2, :1]], 1).logsumexp(1)
    scores[:, :, :2] = x[:2, :2]
    return scores.contiguous()


def leaves_a_stale_view(x):
    rows = (x.clone().requires_grad_() * 2).unbind(0)
    with torch.no_grad():
        rows[0].add_(1)  # from here on, asking rows[1] for its grad_fn raises
    return x * 3


PROGRAMS = {
    "new of a size": (lambda x: x.new(4, 8).zero_() + x, "new"),
    "new of a tensor": (lambda x: x.new(x.sum(0)).cumsum(0), "new"),
    "new of a list": (lambda x: x.new([1.0, 2.0]).sum() + x, "new"),
    "new of a parameter": (lambda x: nn.Linear(8, 4).weight.new(4, 8).fill_(2) * x, "new"),
    "a scatter that overwrites its target": (overwrites_its_target, "scatter_"),
    "a stale view": (leaves_a_stale_view, "unbind"),
    "places without dimensions": (writes_by_places_without_dimensions, "__setitem__"),
    "custom operators": (custom_operators, "foo wave bump_ mul"),
    "cond": (lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,)), "add sub"),
    "nested": (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]]).to_padded_tensor(0.0) * 2, "to_padded_tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]], layout=torch.jagged).sin().values(), "sin"),
    "packed sequences": (lambda x: nn.LSTM(8, 4)(rnn.pack_sequence([x, x[:2]]))[0].data, "lstm"),
    "jacrev": (lambda x: torch.func.jacrev(lambda a: a.sin().sum(0))(x), "sin"),
    "hessian": (lambda x: torch.func.hessian(lambda a: (a**3).sum())(x[0]), "pow"),
    "gradient inside": (gradient_inside, "pow"),
    "new data": (new_data, "set_data"),
    "deepcopy": (lambda x: copy.deepcopy(x) * 2, "mul"),
    "out": (lambda x: torch.add(x, 1, out=torch.empty(4, 8)) * 2, "add"),
    "rows": (writes_rows, "__setitem__"),
    "iteration": (lambda x: sum(row.sum() for row in x), "unbind"),
    "half types": (lambda x: x.to(torch.bfloat16).float().half(), "half"),
    "fp8": (lambda x: x.to(torch.float8_e4m3fn).float(), "to"),
    "booleans": (lambda x: ((x > 0) & (x < 1)).any() | torch.tensor(True), "any"),
    "from numpy": (lambda x: torch.from_numpy(x.numpy() * 2) + x, "add"),
    "as tensor": (lambda x: torch.as_tensor(x.numpy()) + x, "as_tensor"),
    "lists": (lambda x: torch.tensor(x.tolist()) + x, "tensor"),
    "view of a view": (view_of_a_view, "alias"),
    "scatter": (lambda x: torch.zeros(4, 8).scatter_(1, torch.zeros(4, 1, dtype=torch.long), x), "scatter_"),
    "foreach": (lambda x: torch._foreach_add([x, x], 1)[0], "_foreach_add"),
    "generator": (lambda x: torch.rand(3, generator=torch.Generator().manual_seed(3)) * x.sum(), "rand"),
    "multinomial": (lambda x: torch.multinomial(x.softmax(-1), 2).sum(), "multinomial"),
    "stft": (
        lambda x: torch.stft(x.flatten().repeat(9), 64, return_complex=True, window=torch.hann_window(64)),
        "stft",
    ),
    "ctc": (
        lambda x: functional.ctc_loss(
            torch.randn(20, 2, 9).log_softmax(2), torch.ones(2, 5).long(), torch.tensor([20, 20]), torch.tensor([5, 5])
        ),
        "ctc_loss",
    ),
}


INSIDE_VMAP = {"jacrev", "hessian"}  # whose values live only while the transform runs


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_an_odd_program_is_recorded_and_replays(name):
    function, expected = PROGRAMS[name]
    torch.manual_seed(0)
    plain = Does(function)(X)
    torch.manual_seed(0)
    history = tl.log_forward_pass(Does(function), X)
    assert torch.equal(history["output_1"].tensor_contents, plain)
    assert set(expected.split()) & {op.name for op in history.ops}
    report = history.validate()
    assert report.verdict == ("not judged" if name in INSIDE_VMAP else "held"), report
    assert len(str(history)) and len(history.to_pandas()) == len(history)


MODELS = {
    "spectral norm": parametrizations.spectral_norm(nn.Linear(8, 4)),
    "weight norm": parametrizations.weight_norm(nn.Linear(8, 4)),
    "lazy": nn.Sequential(nn.LazyLinear(3)),
    "bilinear": nn.Bilinear(8, 8, 3),
    "transformer": nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
    "embedding with a norm": nn.Embedding(10, 4, max_norm=0.1),
    "instance norm": nn.InstanceNorm1d(4, track_running_stats=True),
    "gru": nn.GRU(8, 4, 2, dropout=0.5, bidirectional=True),
}
INPUTS = {
    "bilinear": (X, X),
    "transformer": (X[None], X[None]),
    "embedding with a norm": torch.tensor([1, 2, 3]),
    "instance norm": X[None],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_an_odd_module_is_recorded_and_replays_without_touching_its_state(name):
    model = MODELS[name]
    history = tl.log_forward_pass(model, INPUTS.get(name, X))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    report = history.validate()
    assert report, report
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_writes_to_empty_tensors_lose_nothing():
    def forward(x):
        y = x.clone()
        y[..., 0] *= 2
        y[..., 1] *= 2
        return y

    for rows in (0, 2):
        report = tl.validate(Does(forward), torch.ones(rows, 3))
        assert report and all("outside" in reason for reason in report.skipped.values()), report


def test_a_cast_of_a_parameter_that_changes_nothing_is_no_operation_each_time():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.scale.float() + self.scale.float().contiguous()

    for _ in range(2):  # the first call of a function in a process takes another way than the later ones
        history = tl.log_forward_pass(Cast(), torch.randn(2, 4))
        assert [op.name for op in history.ops] == ["input", "mul", "add", "output"]


def test_a_cast_that_changes_nothing_is_no_operation_and_takes_no_reader_away():
    class Norm(nn.Module):
        def forward(self, x):
            wide = x.float().contiguous()
            return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True))

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm = nn.Linear(4, 4), Norm()

        def forward(self, x):
            x = self.fc(x)
            return x + self.norm(x)

    history = tl.log_forward_pass(Skip(), torch.randn(2, 4))
    assert history["add_1"].parent_layers == ["linear_1_1", "mul_1_5"]
    assert [label for label in history.layer_labels if label.startswith(("float", "contiguous"))] == []
    assert history.validate()
    half = tl.log_forward_pass(Skip().half(), torch.randn(2, 4).half())
    assert "float_1_2" in half.layer_labels  # here it does something


class StaticDouble(nn.Module):
    @staticmethod
    def forward(x):
        return x * 2


class ClassNamed(nn.Module):
    @classmethod
    def forward(cls, x):
        return x + len(cls.__name__)


@pytest.mark.parametrize("inner", [StaticDouble(), ClassNamed()], ids=["static", "class"])
@pytest.mark.parametrize("structure", [True, False])
def test_a_forward_that_takes_no_module_is_called_without_it(inner, structure):
    for model, path in ((inner, ""), (nn.Sequential(nn.Linear(8, 8), inner), "1")):
        history = tl.log_forward_pass(model, X, layers_to_save=path or "all", structure=structure or not path)
        assert path or torch.equal(history[-1].tensor_contents, model(X))
        assert not path or torch.equal(history[path].tensor_contents, model(X))

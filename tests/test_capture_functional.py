"""Every function of torch.nn.functional: captured, opened, replayed, and unchanged in what it computes."""

import types
import warnings
from itertools import islice

import pytest
import torch
import torch.nn.functional as functional
from models import Does
from seams import leaves
from torch import nn

import torcheer as tl

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLED = {}
for info in op_db:
    if info.name.startswith("nn.functional.") and torch.float32 in info.dtypes:
        SAMPLED.setdefault(info.name.removeprefix("nn.functional."), info)


def _rand(*shape):
    return torch.rand(*shape) - 0.5


# What torch's own table of samples leaves out.
EXTRA = {
    "adaptive_max_pool1d_with_indices": lambda f: f(_rand(2, 3, 8), 4),
    "adaptive_max_pool2d_with_indices": lambda f: f(_rand(2, 3, 8, 8), 4),
    "adaptive_max_pool3d_with_indices": lambda f: f(_rand(2, 3, 8, 8, 8), 4),
    "affine_grid": lambda f: f(_rand(2, 2, 3), [2, 3, 4, 4], align_corners=False),
    "batch_norm": lambda f: f(_rand(4, 3), torch.zeros(3), torch.ones(3), training=True),
    "celu_": lambda f: f(_rand(4)),
    "conv_tbc": lambda f: f(_rand(5, 2, 3), _rand(3, 3, 4), _rand(4)),
    "dropout1d": lambda f: f(_rand(2, 3, 4)),
    "elu_": lambda f: f(_rand(4)),
    "fold": lambda f: f(_rand(1, 12, 4), (3, 3), (2, 2)),
    "fractional_max_pool2d_with_indices": lambda f: f(_rand(1, 2, 9, 9), 2, output_size=4),
    "fractional_max_pool3d_with_indices": lambda f: f(_rand(1, 2, 9, 9, 9), 2, output_size=4),
    "gumbel_softmax": lambda f: f(_rand(3, 4), hard=True),
    "hardtanh_": lambda f: f(_rand(4)),
    "leaky_relu_": lambda f: f(_rand(4)),
    "log_softmax": lambda f: f(_rand(3, 4), dim=-1),
    "lp_pool1d": lambda f: f(torch.rand(1, 2, 8), 2, 2),
    "lp_pool2d": lambda f: f(torch.rand(1, 2, 8, 8), 2, 2),
    "lp_pool3d": lambda f: f(torch.rand(1, 2, 8, 8, 8), 2, 2),
    "max_pool1d_with_indices": lambda f: f(_rand(1, 2, 8), 2),
    "max_pool2d_with_indices": lambda f: f(_rand(1, 2, 8, 8), 2),
    "max_pool3d_with_indices": lambda f: f(_rand(1, 2, 8, 8, 8), 2),
    "multi_head_attention_forward": lambda f: nn.MultiheadAttention(4, 2)(*[_rand(3, 1, 4)] * 3)[0],
    "native_channel_shuffle": lambda f: f(_rand(1, 4, 2, 2), 2),
    "one_hot": lambda f: f(torch.tensor([0, 2, 1])),
    "relu_": lambda f: f(_rand(4)),
    "rrelu_": lambda f: f(_rand(4), training=True),
    "selu_": lambda f: f(_rand(4)),
    "sigmoid": lambda f: f(_rand(4)),
    "silu": lambda f: f(_rand(4)),
    "softmax": lambda f: f(_rand(3, 4), dim=-1),
    "tanh": lambda f: f(_rand(4)),
    "threshold_": lambda f: f(_rand(4), 0.1, 0.0),
    "upsample": lambda f: f(_rand(1, 2, 4, 4), scale_factor=2),
}
# No CPU kernel, or not a function of tensors.
ELSEWHERE = {"grouped_mm", "scaled_grouped_mm", "scaled_mm"}
MACHINERY = {"assert_int_or_pair", "boolean_dispatch", "handle_torch_function"}


def check(function):
    model = Does(function)
    torch.manual_seed(3)
    plain = leaves(model())
    torch.manual_seed(3)
    history = tl.log_forward_pass(model, ())
    found = [op.tensor_contents for op in history if op.kind == "output"]
    assert len(found) == len(plain)
    for one, two in zip(found, plain, strict=True):
        assert torch.equal(one, two) or (torch.isnan(one) == torch.isnan(two)).all()
    report = history.validate()
    assert report, report
    assert any(op.kind == "op" for op in history)


def _fresh(value):
    """In-place functions must not see the last run's results."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(_fresh(item) for item in value)
    return {key: _fresh(item) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("name", sorted(SAMPLED))
@pytest.mark.filterwarnings("ignore")
def test_a_function_that_torch_has_samples_for(name):
    info = SAMPLED[name]
    samples = info.sample_inputs_func(info, "cpu", torch.float32, False)  # untracked, hence quicker
    for sample in islice(samples, 3):
        check(lambda s=sample: info.op(_fresh(s.input), *_fresh(s.args), **_fresh(s.kwargs)))


@pytest.mark.parametrize("name", sorted(EXTRA))
@pytest.mark.filterwarnings("ignore")
def test_a_function_that_torch_has_no_samples_for(name):
    check(lambda: EXTRA[name](getattr(functional, name, None)))


def test_no_function_is_left_out():
    kinds = (types.FunctionType, types.BuiltinFunctionType)
    public = {name for name, value in vars(functional).items() if isinstance(value, kinds) and not name.startswith("_")}
    asks = {name for name in public if name.startswith("has_torch_function")}
    assert public - set(SAMPLED) - set(EXTRA) - ELSEWHERE - MACHINERY - asks == set()

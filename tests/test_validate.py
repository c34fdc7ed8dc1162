"""The proof has teeth: what is wrong is found, what cannot show is not blamed."""

import random
import sys
import time

import pytest
import torch
import torch.ao.quantization as quantization
from children import run_python
from models import Does
from seams import Replay, lookup_call
from torch import nn
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize
from torch.autograd import forward_ad
from torch.masked import masked_tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import torcheer as tl
from torcheer.errors import CannotReplay


def capture():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    return tl.log_forward_pass(model, torch.randn(3, 4))


def test_a_wrong_value_is_found_and_named():
    history = capture()
    history.trace.recorder.memory.copies[1 << 20] = torch.randn(3, 4)
    report = history.validate()
    assert not report
    assert "linear_1_1 unequal" in str(report) and "relu_1_2 unequal" in str(report)


def test_a_wrong_parent_of_the_same_shape_is_found():
    history = capture()
    recorder = history.trace.recorder
    position = recorder.refs.index(2 << 20)  # the second linear read the first relu
    recorder.refs[position] = 0
    assert not history.validate()


def test_a_parent_that_does_not_matter_is_found():
    @torch.library.custom_op("torcheer_tests::ignores", mutates_args=())
    def ignores(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 2

    report = tl.validate(Does(lambda x: ignores(x, x.sin())), torch.randn(4))
    assert not report and "sin" in str(report)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > -99, x, x * 2),
        lambda x: x.masked_fill(x > 99, torch.scalar_tensor(3.0)),
        lambda x: x * torch.zeros(4),
        lambda x: torch.clamp(x - 9, 2, 5),
        lambda x: nn.functional.layer_norm(x[:, None], (1,), torch.ones(1), torch.zeros(1)),
        lambda x: nn.functional.dropout(x, 1.0, True),
        lambda x: torch.zeros_like(x) + x.new_zeros(4),
        lambda x: nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 4)] * 2, x.view(1, 1, 4) * 2),
    ],
)
def test_a_parent_that_cannot_show_is_not_blamed(function):
    report = tl.validate(Does(function), torch.randn(4))
    assert report, report


def test_one_call_captures_and_proves():
    report = tl.validate(nn.Linear(2, 3), torch.rand(1, 2))
    assert report and "held" in str(report) and "2/3 operations" in str(report)


def test_a_history_without_its_live_model_says_that_replay_needs_it():
    history = capture()

    class Loaded:
        def __init__(self, trace):
            self.info, self.ops = trace.info, trace.ops

    history.trace = Loaded(history.trace)
    with pytest.raises(CannotReplay, match="live model"):
        history.validate()


def test_a_proof_of_nothing_is_no_proof():
    history = tl.log_forward_pass(nn.Linear(2, 2), torch.rand(1, 2), layers_to_save="none")
    report = history.validate()
    assert not report and "nothing could be replayed" in str(report)


# -- right captures are held ------------------------------------------------------------------------------------------

ROWS = torch.arange(3)
EVERYWHERE = ROWS[:, None].expand(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.zeros(3, 4).scatter_reduce_(0, EVERYWHERE, x, "amax", include_self=False),
        lambda x: (x * 2).scatter_reduce(0, EVERYWHERE, x, "sum", include_self=False),
        lambda x: (x * 2).scatter(0, EVERYWHERE, x),
        lambda x: (x * 2).scatter_(0, EVERYWHERE, x),
        lambda x: (x * 2).index_copy(0, ROWS, x),
        lambda x: (x * 2).index_put((ROWS,), x),
        lambda x: (x * 2).slice_scatter(x),
        lambda x: (x * 2)[:1].select_scatter(x[0], 0, 0),
        lambda x: (x * 2).masked_scatter(x == x, x),
        lambda x: torch.add(x, x * 2, alpha=0),
        lambda x: torch.addmm(x, x, torch.eye(4), beta=0),
        lambda x: torch.heaviside(x, x * 2),
        lambda x: functional.group_norm(x[:, :, None], 4, torch.ones(4), torch.ones(4)),
    ],
)
def test_a_target_that_is_covered_is_not_blamed(function):
    report = tl.validate(Does(function), torch.randn(3, 4))
    assert report and not report.unjudged, report


def learnable():
    layer = _LearnableFakeQuantize(quantization.MovingAverageMinMaxObserver, 0, 255)
    layer.enable_param_learning()
    return layer


def prepared():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "model",
    [
        quantization.FakeQuantize,
        quantization.FusedMovingAvgObsFakeQuantize,
        learnable,
        prepared,
        lambda: Does(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)),
        lambda: Does(
            lambda x: torch.fake_quantize_per_tensor_affine(
                x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 255
            )
        ),
        lambda: Does(
            lambda x: torch.fake_quantize_per_channel_affine(
                x, torch.rand(3) + 0.1, torch.zeros(3, dtype=torch.int32), 1, 0, 255
            )
        ),
        lambda: nn.BatchNorm2d(3, momentum=None),
        lambda: nn.BatchNorm2d(3, momentum=1.0),
        lambda: nn.InstanceNorm2d(3, track_running_stats=True, momentum=1.0),
        lambda: torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()),
        lambda: nn.Sequential(nn.ReLU(), torch.jit.script(nn.BatchNorm2d(3).train()), nn.ReLU(inplace=True)),
    ],
)
def test_layers_that_write_what_they_measured_are_held(model):
    model = nn.Sequential(model())
    report = tl.validate(model, torch.randn(2, 3, 8, 8))
    assert report and not report.unjudged, report


@pytest.mark.filterwarnings("ignore")
def test_replaying_scripted_batch_norm_leaves_the_models_statistics_alone():
    model = torch.jit.script(nn.BatchNorm1d(4).train())
    history = tl.log_forward_pass(model, torch.randn(5, 4))
    before = model.running_mean.clone()
    assert history.validate() and torch.equal(model.running_mean, before)
    norm = next(op for op in history if op.name == "native_batch_norm")
    assert [meta.shape for meta in norm.written] == [(4,), (4,)]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("padded", [True, False])
def test_attention_under_inference_mode_is_held(fused, inside, padded):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if padded else None
    with torch.inference_mode():
        inputs = {"src": torch.randn(2, 5, 8), "src_key_padding_mask": mask}
        history = tl.log_forward_pass(model, (), input_kwargs=inputs, fused=fused)
        report = history.validate() if inside else None
    report = history.validate() if report is None else report
    assert report and not report.unjudged, report


def dual(x):
    with forward_ad.dual_level():
        number = forward_ad.make_dual(x * 1, torch.ones_like(x))
        y = (number * 2).sin()
        y.mul_(number)
        y[0] = 1.0
        return tuple(forward_ad.unpack_dual(y))


def test_forward_mode_is_held_and_its_tangents_are_proved():
    history = tl.log_forward_pass(Does(dual), torch.randn(4))
    assert history.validate()
    last = next(op for op in history if op.name == "_unpack_dual")
    recorder = history.trace.recorder
    recorder.memory.copies[last.index << 20 | 1] = torch.randn(4)  # another tangent than came out
    report = history.validate()
    assert next(iter(report.failures)) == last.index


def test_dual_numbers_given_to_a_model_are_held_in_and_after_their_level():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.randn(2, 4), torch.randn(2, 4))
        history = tl.log_forward_pass(model, x)
        assert history.validate()
    assert history.validate()


class Larger(TorchDispatchMode):
    """Whatever is computed as a sine is larger."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 1.5 if func is torch.ops.aten.sin.default else result


class LargerFunction(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 1.5 if func is torch.Tensor.sin else result


@pytest.mark.parametrize("mode", [Larger, LargerFunction])
def test_a_mode_of_the_users_around_a_capture_is_replayed(mode):
    with mode():
        history = tl.log_forward_pass(Does(lambda x: x.sin() * 2), torch.randn(4))
        assert history.validate()
    assert history.validate()
    history.trace.recorder.memory.copies[1 << 20] = torch.randn(4)
    assert not history.validate()


def test_a_mode_of_the_users_inside_a_model_is_replayed():
    def forward(x):
        with Larger():
            y = x.sin()
        return y.sin()

    assert tl.validate(Does(forward), torch.randn(4))


def test_a_default_device_is_replayed():
    with torch.device("meta"):
        history = tl.log_forward_pass(Does(lambda x: torch.ones(3) + x), torch.empty(3))
    assert history["ones_1"].device == "meta" and history.validate()


def test_replay_does_not_show_in_the_users_counters():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with FlopCounterMode(display=False) as counter:
        history = tl.log_forward_pass(model, torch.randn(2, 4))
        before = counter.get_total_flops()
        assert history.validate() and counter.get_total_flops() == before > 0
        stack = torch._C._len_torch_dispatch_stack()
    assert stack == 1 and not torch._C._len_torch_dispatch_stack()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.new(400).fill_(1) + 1,
        lambda x: x.new(2, 200).zero_() + 1,
        lambda x: x.new(torch.Size([400])) * 0 + 1,
        lambda x: torch.cat([x.new(), x]),
        lambda x: x.new([1.0, 2.0]) + 1,
        lambda x: x.new(x * 2) + 1,
        lambda x: torch.Tensor(400).fill_(2) + 1,
        lambda x: torch.FloatTensor(2, 200).fill_(2) + 1,
        lambda x: torch.empty_like(x).copy_(x) + 1,
        lambda x: (x * 2).resize_(900).zero_() + 1,
        lambda x: torch.add(x, 1, out=x.new()),
        lambda x: torch.ops.torcheer_tests.fresh(x, 400)[:4] * 2,
        lambda x: torch.ops.torcheer_tests.fresh(x.long(), 400)[:4] * 2,
    ],
)
def test_memory_that_nobody_wrote_is_skipped_under_whatever_name(function):
    _ = fresh
    x = torch.randn(4)
    dirty = [torch.full((400,), float(number)) for number in range(50)]
    del dirty  # what is allocated next has something in it
    report = tl.validate(Does(function), x)
    assert report and not report.unjudged, report


@torch.library.custom_op("torcheer_tests::fresh", mutates_args=())
def fresh(x: torch.Tensor, count: int) -> torch.Tensor:
    result = torch.empty(count, dtype=x.dtype)
    result[: x.numel()] = x
    return result


def test_what_was_written_beside_uninitialised_memory_is_judged():
    history = tl.log_forward_pass(Does(lambda x: fresh(x, 4000)), torch.randn(4))
    value = history["fresh_1"].tensor_contents.clone()
    value[0] += 1
    history.trace.recorder.memory.copies[1 << 20] = value
    value[5] = 12.5  # surely other memory than replay finds
    assert 1 in history.validate().failures


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)),
        lambda: nn.Sequential(nn.LazyConv1d(4, 1), nn.LazyBatchNorm1d(), nn.ReLU()),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_lazy_modules_are_held(model):
    report = tl.validate(model(), torch.randn(3, 5, 6))
    assert report and not report.unjudged, report


@pytest.mark.filterwarnings("ignore")
def test_masked_tensors_are_held_inside_and_as_input():
    x, mask = torch.randn(3, 4), torch.rand(3, 4) > 0.5
    assert tl.validate(Does(lambda x: (masked_tensor(x, x > 0) * 2).sum()), x)
    history = tl.log_forward_pass(Does(lambda m: (m * 2).sin()), masked_tensor(x, mask))
    assert history.validate()
    history.trace.recorder.memory.copies[2 << 20] = masked_tensor(x + 1, mask)
    assert not history.validate()


def test_a_single_number_that_is_nan_equals_itself():
    assert tl.validate(Does(lambda x: (x * float("nan")).sum() + 1), torch.randn(4))


def test_other_number_types_are_compared():
    assert tl.validate(Does(lambda x: x.chalf().real.float() + 1), torch.randn(4))
    assert tl.validate(Does(lambda x: x.to(torch.float8_e4m3fn).float() + 1), torch.randn(4))


def with_a_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.zeros(4) + torch.arange(4.0) + torch.tensor([1.0] * 4) + torch.rand(4)
        return x + made, torch.arange(4) / 3, torch.ones(4, dtype=torch.long).exp()
    finally:
        torch.set_default_dtype(torch.float32)


def with_a_default_device(x):
    torch.set_default_device("meta")
    try:
        return torch.zeros(4), torch.rand(4), x * 2
    finally:
        torch.set_default_device(None)


def with_a_chosen_kernel(x):
    heads = x.repeat(40).view(1, 1, 10, 16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("forward", [with_a_default_dtype, with_a_default_device, with_a_chosen_kernel])
@pytest.mark.parametrize("save", ["all", tl.Save(guard="clone")])
def test_settings_that_a_model_changes_as_it_runs_are_those_of_the_replay(forward, save):
    history = tl.log_forward_pass(Does(forward), torch.randn(4), layers_to_save=save)
    report = history.validate()
    assert report and not report.unjudged, report
    assert torch.get_default_dtype() is torch.float32 and torch.zeros(1).device.type == "cpu"
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("name", ["default dtype", "threads", "deterministic", "mkldnn"])
def test_settings_around_a_capture_are_those_of_the_replay(name):
    seen = []

    def forward(x):
        seen.append((torch.get_default_dtype(), torch.get_num_threads(), torch.backends.mkldnn.enabled))
        seen[-1] += (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        return looks(x) + torch.zeros(3)

    @torch.library.custom_op(f"torcheer_tests::looks_at_{name.split()[0]}", mutates_args=())
    def looks(x: torch.Tensor) -> torch.Tensor:
        return x * hash((torch.get_num_threads(), torch.backends.mkldnn.enabled,
                         torch.are_deterministic_algorithms_enabled()))  # fmt: skip

    set_it = {
        "default dtype": lambda on: torch.set_default_dtype(torch.float64 if on else torch.float32),
        "threads": lambda on: torch.set_num_threads(before[1] + on),
        "deterministic": lambda on: torch.use_deterministic_algorithms(on, warn_only=on),
        "mkldnn": lambda on: torch.backends.mkldnn.set_flags(_enabled=not on, _fp32_precision=None),
    }[name]
    forward(torch.randn(3))
    before = seen.pop()
    set_it(True)
    try:
        history = tl.log_forward_pass(Does(forward), torch.randn(3))
    finally:
        set_it(False)
    report = history.validate()
    assert report and not report.unjudged, report
    forward(torch.randn(3))
    assert seen.pop() == before != seen.pop()


def reduced_onto_itself(w):
    w = w * 1
    torch.sum(w, 0, out=w[0])
    torch.mean(w, 0, out=w[1])
    torch.mm(w[:2, :2], w[1:, 2:], out=w[1:, :2])
    torch.cumsum(w[:, 1:], 0, out=w[:, :3])
    return w * 2


@pytest.mark.parametrize("save", ["all", tl.Save(guard="clone"), tl.Save(detach=True)])
def test_an_out_that_overlaps_what_is_read_is_held(save):
    with torch.no_grad():
        history = tl.log_forward_pass(Does(reduced_onto_itself), torch.randn(3, 4), layers_to_save=save)
    report = history.validate()
    assert report and not report.unjudged, report
    total = history["sum_1"]
    copies = history.trace.recorder.memory.copies
    copies[total.index << 20] = total.tensor_contents.nextafter(torch.tensor(99.0))
    assert total.index in history.validate().failures


def conjugated(x):
    z = x * 1
    z.conj()[0] = 2 + 1j
    z.conj().mul_(2j)
    z.conj().imag.add_(1.0)
    z.mH.real[1:].copy_(x.mT.imag[1:])
    w = z.conj()
    y = w @ x.mT
    z.zero_()
    return y, w * 2, z


@pytest.mark.parametrize("save", ["all", tl.Save(guard="clone")])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_a_write_through_a_conjugate_is_held(save, dtype):
    with torch.no_grad():
        history = tl.log_forward_pass(Does(conjugated), torch.randn(3, 4, dtype=dtype), layers_to_save=save)
    report = history.validate()
    assert report and not report.unjudged, report


def sparse(x):
    indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
    twice = torch.sparse_coo_tensor(indices, x[:3], (2, 3), check_invariants=True)
    return (twice + twice).to_dense(), twice.coalesce() * 2, x.view(2, 2).to_sparse_csr() @ x[:2]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_sparse_values_are_compared_as_they_are(mode):
    with mode():
        history = tl.log_forward_pass(Does(sparse), torch.randn(4))
    assert history.validate(), history.validate()
    made = next(op for op in history if op.name == "sparse_coo_tensor")
    with mode():
        other = made.tensor_contents.clone()
        other._values()[2] = other._values()[2].nextafter(torch.tensor(9.0))
    history.trace.recorder.memory.copies[made.index << 20] = other
    assert made.index in history.validate().failures


def test_a_difference_is_told_in_its_own_words():
    history = tl.log_forward_pass(Does(lambda x: (x * 1, x + 0, x.long(), x > 0, x.sgn(), x + 1)), torch.zeros(3))
    copies = history.trace.recorder.memory.copies
    other = [torch.zeros(4), -torch.zeros(3), torch.tensor([0, 0, 2**60]), torch.ones(3), torch.full((3,), torch.nan)]
    copies |= {number << 20: value for number, value in enumerate(other, 1)}
    text = str(history.validate())
    for words in (
        "mul_1_1 unequal: output 0 is 3 float32 on cpu, recorded was 4 float32 on cpu",
        "add_1_2 unequal: output 0 differs in bits alone (the sign of a zero, the kind of a NaN)",
        "long_1_3 unequal: output 0 differs by up to 1.15e+18",
        "gt_1_4 unequal: output 0 is 3 bool on cpu, recorded was 3 float32 on cpu",
        "sgn_1_5 unequal: output 0 differs where only one of the two is NaN",
    ):
        assert words in text, text


class Integrates(nn.Module):
    """A spiking neuron: its buffers take part in what it computes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("decay", torch.tensor(0.9))
        self.register_buffer("threshold", torch.tensor(1.0))
        self.register_buffer("charge", torch.zeros(1))

    def forward(self, x):
        is_over = (self.charge - self.threshold > 0).float()
        self.charge = self.decay.clamp(0, 1) * self.charge + x - is_over * self.threshold
        return self.charge


class Scaled(torch.Tensor):
    """A weight of whole numbers and a scale, as libraries that quantise make them."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype, device=scale.device)

    def __init__(self, numbers, scale):
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self):
        return ["numbers", "scale"], None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is functional.linear:
            x, weight, bias = args
            return (x @ (weight.numbers.t() * weight.scale) + bias).to(x.dtype)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(func(args[0].numbers), func(args[0].scale))
        return NotImplemented


def quantised():
    layer = nn.Linear(4, 5)
    numbers = (layer.weight.detach() * 127).round().to(torch.int8)
    layer.weight = nn.Parameter(Scaled(numbers, torch.tensor(1 / 127)), requires_grad=False)
    return layer


@pytest.mark.parametrize("make", [Integrates, quantised])
@pytest.mark.parametrize("edit", [tl.edits.zero(), tl.edits.replace(3.0), tl.edits.scale(2.0), tl.edits.clamp(0, 0)])
def test_what_an_edit_does_not_let_through_is_no_parent_that_does_not_matter(make, edit):
    model = nn.Sequential(nn.Linear(4, 4), make())
    edited = 0
    for op in tl.log_forward_pass(model, torch.randn(3, 4)).ops:
        if op.kind == "op" and op.name != "gt":
            report = tl.log_forward_pass(model, torch.randn(3, 4), edits={op.index: edit}).validate()
            assert report, (op.name, report)
            edited += 1
    assert edited > 1


def test_an_edge_of_an_edited_operation_is_proved_all_the_same():
    history = tl.log_forward_pass(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4), edits={"linear_1": tl.edits.zero()}
    )
    recorder = history.trace.recorder
    recorder.rows[9] = lookup_call(ignores_its_second)
    assert "parameter" in str(history.validate().dead_edges)


@torch.library.custom_op("torcheer_tests::ignores_its_second", mutates_args=())
def ignores_its_second(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x * 2 + bias


# -- a model is left as it was ----------------------------------------------------------------------------------------


class Counts(nn.Module):
    """Batch norm, dropout, a counter and a list."""

    def __init__(self):
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        self.seen.append(x)
        return self.dropout(self.norm(x))


@pytest.mark.parametrize("seed", [None, 3])
def test_validating_a_model_in_training_leaves_its_buffers_and_random_state_alone(seed):
    model, x = Counts().train(), torch.randn(5, 4)
    buffers = dict(model.named_buffers())
    state, random_state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    report = tl.validate(model, x, seed=seed)
    assert report and not report.unjudged, report
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert model.calls == 0 and model.seen == [] and torch.equal(torch.get_rng_state(), random_state)
    assert model.norm.num_batches_tracked == 0


def test_a_model_that_raises_while_it_is_validated_is_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(3, 3)).train()
    with pytest.raises(RuntimeError, match="shape"):
        tl.validate(model, torch.randn(5, 4))
    assert model[0].num_batches_tracked == 0


# -- the third verdict ------------------------------------------------------------------------------------------------


@torch.library.custom_op("torcheer_tests::wavers", mutates_args=())
def wavers(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + 1e-3 * random.random())


def test_a_kernel_that_gives_other_numbers_each_time_cannot_be_judged():
    history = tl.log_forward_pass(Does(lambda x: wavers(x) + 1), torch.randn(40))
    report = history.validate()
    assert report and list(report.unjudged) == [1] and report.equal == 2 and not report.failures
    second = str(report).splitlines()[1]
    assert (
        second == "\t2/4 operations replay bit for bit from their recorded parents, 0 failed, 1 not judged, 1 skipped"
    )
    assert "1 cannot be judged: it gives other numbers each time it runs" in str(report)


def test_a_wrong_value_of_such_a_kernel_is_found_all_the_same():
    history = tl.log_forward_pass(Does(lambda x: wavers(x) + 1), torch.randn(40))
    history.trace.recorder.memory.copies[1 << 20] = torch.randn(40)
    assert list(history.validate().failures) == [1, 2]


def test_a_report_on_nothing_but_what_cannot_be_judged_is_false():
    x = torch.randn(40)
    with tl.recording() as history:
        wavers(x)
    report = history.validate()
    assert not report and not report.failures and "nothing could be replayed" in str(report)
    with tl.recording() as history:
        pass
    assert not history.validate()


@torch.library.custom_op("torcheer_tests::aligned", mutates_args=())
def aligned(x: torch.Tensor) -> torch.Tensor:
    return x * (1 + 1e-6 * (x.data_ptr() % 64))  # as kernels that add in another order where memory is aligned


def test_a_unit_in_the_last_place_is_no_noise_of_another_alignment():
    history = tl.log_forward_pass(Does(lambda x: aligned(x) + 1), torch.randn(40))
    value = history["aligned_1"].tensor_contents.clone()
    value[7] = value[7].nextafter(torch.tensor(9.0))
    history.trace.recorder.memory.copies[1 << 20] = value
    report = history.validate()
    assert report.verdict == "FAILED" and list(report.failures) == [1, 2] and not report.unjudged


@pytest.mark.parametrize("save", ["all", tl.Save(guard="clone"), tl.Save(detach=True)])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "part",
    [lambda y: y[3:], lambda y: y[1:].view(-1, 3).t(), lambda y: y[2].expand(5), lambda y: y.unfold(0, 4, 1)[1:]],
)
def test_copies_lie_in_memory_as_the_values_did(save, grad, part):
    def forward(x):
        y = x * 2
        z = aligned(part(y))
        y[0] = 3.0  # a small part of it: what it replaces can be kept in a log
        w = aligned(part(y))
        y.zero_()
        return z, w, y.numpy(force=True).sum() * x

    x = torch.randn(5200, requires_grad=grad)
    report = tl.log_forward_pass(Does(forward), x, layers_to_save=save).validate(perturb=False)
    assert report, report


# -- wrong captures fail, in each of these ways -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "function, name",
    [
        (lambda x: (x * 2).scatter(0, EVERYWHERE, x), "scatter"),
        (lambda x: torch.zeros(3, 4).scatter_reduce_(0, EVERYWHERE, x, "amax", include_self=False), "scatter_reduce_"),
        (lambda x: functional.batch_norm(x, torch.zeros(4), torch.ones(4), training=True, momentum=1.0), "batch_norm"),
        (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), "fake_quantize_per_tensor_affine"),
        (lambda x: (masked_tensor(x, x > 0) * 2).get_data(), "mul"),
        (lambda x: dual(x)[0], "sin"),
        (lambda x: x.split(1)[2] * 2, "split"),
        (lambda x: torch.cat([*x.unbind(), *[x[0]] * 20]), "cat"),
        (lambda x: torch._foreach_mul(list(x.unbind()), 2.0)[1], "_foreach_mul"),
    ],
)
def test_an_altered_value_or_another_parent_is_found(function, name):
    torch.manual_seed(0)
    x = torch.rand(3, 4) + 0.5
    history = tl.log_forward_pass(Does(function), x)
    assert history.validate(), history.validate()
    op, recorder = next(op for op in history if op.name == name), history.trace.recorder
    for output in range(len(op.outputs) + len(op.written)):
        altered = tl.log_forward_pass(Does(function), x)
        value = altered.trace.value(op.index, output)
        data = value.get_data() if hasattr(value, "get_data") else value.clone()
        data.view(-1)[-1] += 1
        other = masked_tensor(data, value.get_mask()) if hasattr(value, "get_data") else data
        altered.trace.recorder.memory.copies[op.index << 20 | output] = other
        assert op.index in altered.validate().failures, output
    edge = next(edge for edge in reversed(op.edges) if history[edge.parent].name not in ("zeros", "ones"))
    parent = altered.trace.value(edge.parent, edge.output)
    swapped = tl.log_forward_pass(Does(function), x).trace.recorder
    place = swapped.row(op.index).refs.index(edge.parent << 20 | edge.output)
    swapped.refs[swapped.rows[op.index * 9 + 4] + place] = edge.parent << 20 | edge.output | 1 << 19
    swapped.memory.copies[edge.parent << 20 | edge.output | 1 << 19] = parent + 1
    verdict = Replay(swapped).judge(op.index)[0] if name != "sin" else "unequal"
    assert verdict.startswith("unequal"), verdict
    assert recorder.count == swapped.count


# -- cost -------------------------------------------------------------------------------------------------------------


def many(count):
    return tuple(torch.randn(2) for _ in range(count))


@pytest.mark.timing
@pytest.mark.parametrize(
    "function, given",
    [
        (lambda x: x.split(1)[0] + 1, lambda n: torch.randn(n, 2)),
        (lambda x: x.unbind()[0] + 1, lambda n: torch.randn(n, 2)),
        (lambda *x: torch.cat(x), many),
        (lambda *x: torch.stack(x), many),
        (lambda *x: torch._foreach_addcmul(x, x[::-1], x), many),
    ],
    ids=["split", "unbind", "cat", "stack", "foreach_addcmul"],
)
def test_the_cost_is_linear_in_the_number_of_tensors(function, given):
    def seconds(count):
        history = tl.log_forward_pass(Does(function), given(count))
        begin = time.process_time()
        assert history.validate()
        return time.process_time() - begin

    seconds(60)
    small = min(seconds(60) for _ in range(3))
    assert min(seconds(600) for _ in range(2)) < 45 * small  # 10 to 16 if nearly linear, 100 if square


def test_of_many_parents_the_one_that_does_not_matter_is_found():
    @torch.library.custom_op("torcheer_tests::all_but_one", mutates_args=())
    def all_but_one(xs: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(xs[:30] + xs[31:])

    def forward(x):
        return all_but_one(
            [x[number] for number in range(30)] + [x[30].sin()] + [x[number] for number in range(31, 50)]
        )

    report = tl.validate(Does(forward), torch.randn(50, 3))
    assert len(report.dead_edges) == 1 and "sin" in report.dead_edges[0] and not report


@pytest.mark.parametrize("view", [lambda y: torch.view_as_complex(y.view(2, 2)), lambda y: y[1:].view(torch.int32)])
def test_a_write_under_another_type_of_number_is_held(view):
    with tl.recording() as history:
        y = torch.arange(1.0, 5) * 1
        view(y).mul_(2)
        y * 2
    assert history.validate(), history.validate()


# -- how much was judged ----------------------------------------------------------------------------------------------

COPIES = {"clone": tl.Save(guard="clone"), "device": tl.Save(device="cpu"), "detach": tl.Save(detach=True)}


class Mixed(nn.Module):
    """Views, lists of tensors and of numbers, a write, attention, an output that is written beside the result."""

    def __init__(self):
        super().__init__()
        self.inner, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = torch.cat([self.inner(x), x[:, [0, 2]]], dim=1)
        y[:, 0] += 1
        y = y + y.expand(2, *y.shape)[0].clamp(min=-1)
        z = functional.batch_norm(y.flatten(0, 1), self.mean, torch.ones(4), training=True)
        return self.attention(y, y, y)[0], torch.max(z, 0), {"sizes": torch.split(z, [1, 3], dim=1)}


@pytest.mark.parametrize("save", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("training", [True, False])
def test_saved_copies_are_replayed_all_of_them(save, training):
    model, x = Mixed().train(training), torch.randn(2, 3, 4)
    plain = tl.log_forward_pass(model, x).validate()
    report = tl.log_forward_pass(model, x, layers_to_save=save).validate()
    assert report and not report.unjudged and report.equal == plain.equal, report


@pytest.mark.parametrize("save", COPIES.values(), ids=COPIES)
def test_a_saved_copy_that_was_altered_is_found(save):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(32))
    for index in range(5):
        history = tl.log_forward_pass(model, torch.rand(2, 1, 6, 6), layers_to_save=save)
        recorder = history.trace.recorder
        recorder.memory.copies[index << 20] = history.trace.value(index, 0).detach() + 1
        report = history.validate()
        assert not report and report.verdict == "FAILED" and report.failures.keys() <= {index, index + 1}, index


def test_a_copy_on_another_device_is_replayed_where_it_ran():
    history = tl.log_forward_pass(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 4), layers_to_save=COPIES["device"]
    )
    recorder = history.trace.recorder
    recorder.converted = {1 << 20: torch.device("meta")}  # as if it had been computed there
    assert "meta" in str(recorder.exact_value(1 << 20).device)


@pytest.mark.parametrize(
    "save", [tl.Save(dtype=torch.float64), tl.Save(transform=lambda value: value * 2), tl.Save(device="meta")]
)
def test_values_in_another_form_are_not_judged(save):
    report = tl.log_forward_pass(
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2), layers_to_save=save
    ).validate()
    assert not report and report.verdict == "not judged" and set(report.unjudged) == {1, 2, 3}
    assert "3 not judged: it was stored in another form (dtype, transform or the meta device)" in str(report)


def test_a_part_of_a_pass_that_can_be_replayed_is_not_judged_and_its_share_is_named():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    history = tl.log_forward_pass(model, torch.ones(1, 2), layers_to_save=["linear_1", "relu_1"])
    report = history.validate()
    assert not report and not report.failures and report.equal == 1 and set(report.unjudged) == {1, 3, 4}
    assert str(report).splitlines()[0] == "Validation of Sequential: not judged, 1 of 4 operations could be replayed"
    assert "3 not judged: it was not saved: layers_to_save did not ask for it" in str(report)
    history.trace.recorder.memory.copies[1 << 20] = torch.full((1, 2), 2.0)
    assert history.validate().verdict == "FAILED"


def test_a_pass_whose_weights_were_trained_since_is_not_judged():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    history = tl.log_forward_pass(model, torch.ones(1, 2))
    with torch.no_grad():
        model[0].weight += 1
    report = history.validate()
    assert report.verdict == "not judged" and not report and set(report.unjudged) == {1}
    assert "written in place after the pass" in str(report)


def test_what_takes_part_in_no_replay_does_not_lessen_the_verdict():
    report = tl.validate(Does(lambda x: torch.empty(3).fill_(1) + x), torch.ones(3))
    assert report.verdict == "held" and set(report.skipped) == {0, 1} and not report.unjudged


PEAK = """
import resource, torch, torcheer as tl
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(4):
            x = (x * 1.1).relu() + 1
        return nn.functional.threshold(x, 1e9, 0.0)  # no number shows: everything is tried

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def now():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
assert tl.log_forward_pass(Model(), torch.ones(2, 2)).validate()
x = torch.randn(8, 1 << 20)
history = tl.log_forward_pass(Model(), x)
held, most = now(), peak()
assert history.validate()
size = x.numel() * x.element_size()
print((peak() - most) / size, (now() - held) / size)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_proof_takes_room_for_a_few_values_and_gives_it_back():
    done = run_python("-c", PEAK)
    most, left = map(float, done.stdout.split())
    assert most < 8, f"{most:.1f} times the largest value at once"
    assert left < 1, f"{left:.1f} times the largest value is left afterwards"

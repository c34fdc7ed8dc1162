"""`tl.plan` and `torcheer plan`: the memory of a step, computed on meta and compared with steps that really run."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from seams import grouped_matmul
from tiny_transformers import ARCHITECTURES, tiny
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import torcheer as tl
from torcheer.errors import BadArgument, MissingRule, NotAModel, UnknownLayer, WrongInputs

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gpu_plan

MB = 1 << 20
ON_CPU: dict[str, Any] = {"device": "cpu", "savings": False}


def stack(width: int = 256, depth: int = 3) -> nn.Sequential:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.grow, self.shrink = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shrink(F.gelu(self.grow(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def measured_peak(model: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer) -> int:
    """The peak of the third real step on the CPU, by the profiler's own count of allocations."""

    def step() -> None:
        optimizer.zero_grad()
        output = model(x)
        loss = output.float().mean()
        loss.backward()
        optimizer.step()

    step(), step()
    optimizer.zero_grad()
    before = [*model.parameters(), *model.buffers(), x]
    before += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    held = sum(tensor.nbytes for tensor in before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step()
    changes = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return held + peak


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (stack, (512, 256)),
        (Blocks, (64, 32, 64)),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(2)),
            (8, 3, 64, 64),
        ),
    ],
)
def test_a_plan_for_the_cpu_is_what_a_step_on_the_cpu_allocates(make: Any, shape: Any) -> None:
    model, x = make(), torch.rand(shape)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    assert tl.plan(model, x, optimizer=optimizer, **ON_CPU).peak_bytes == pytest.approx(
        measured_peak(model, x, optimizer), rel=0.03
    )


# What an H200 allocated at most in the third step (torch 2.11, `benchmarks/gpu_plan.py`), in MB.
H200 = {
    "ResNet-50, b32, SGD": 2935,
    "ViT-B/16, b32, AdamW": 5009,
    "GPT-2, 8×512, AdamW": 9070,
    "Llama-shaped 1B, 4×1024, bf16, AdamW": 22513,
    "U-Net, b8, 256², Adam": 3314,
    "LSTM, 32×128, Adam": 2207,
}


@pytest.mark.parametrize(
    "title",
    [
        title if title.startswith(("ResNet", "U-Net", "LSTM")) else pytest.param(title, marks=pytest.mark.slow)
        for title in H200
    ],
)
def test_plans_are_within_a_tenth_of_what_an_h200_allocated(title: str) -> None:
    case = next(case for case in gpu_plan.cases() if case.title == title)
    predicted, _ = gpu_plan.predict(case)
    assert max(peak for peak, _ in predicted.values()) / MB == pytest.approx(H200[title], rel=0.1)


# What is counted


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        ("SGD", 0), (partial(torch.optim.SGD, momentum=0.9), 1), (torch.optim.AdamW, 2), ("adam", 2),
        (partial(torch.optim.Adam, amsgrad=True), 3), (lambda values: torch.optim.RMSprop(values), 1),
    ],
)  # fmt: skip
def test_the_optimizers_own_rules_say_how_much_state_there_is(optimizer: Any, copies: int) -> None:
    model = stack()
    weights = sum(parameter.nbytes for parameter in model.parameters())
    plan = tl.plan(model, torch.empty(4, 256), optimizer=optimizer, **ON_CPU)
    forward = plan.phases[0].kinds
    assert forward.get("state", 0) == copies * weights
    assert forward["parameter"] == weights
    assert plan.phases[2].kinds["gradient"] == weights


def test_a_fused_step_takes_no_copies_and_one_of_many_tensors_takes_one() -> None:
    sizes = [
        tl.plan(stack(), torch.empty(4, 256), optimizer=partial(torch.optim.AdamW, **way), savings=False).phases[2]
        for way in ({"fused": True}, {})
    ]
    assert sizes[0].kinds.get("temporary", 0) == 0
    assert sizes[1].kinds["temporary"] >= sizes[1].kinds["parameter"]


def test_an_optimizer_that_has_run_is_planned_as_it_is_and_not_touched() -> None:
    model = stack()
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model(torch.rand(2, 256)).sum().backward()
    optimizer.step(), scheduler.step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    steps = [float(state["step"]) for state in optimizer.state.values()]
    plan = tl.plan(model, torch.rand(2, 256), optimizer=optimizer, **ON_CPU)
    assert plan.phases[0].kinds["state"] == 2 * sum(
        p.nbytes for layer in (model[0], model[2]) for p in layer.parameters()
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert steps == [float(state["step"]) for state in optimizer.state.values()]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_tied_weights_and_frozen_weights_are_counted_as_they_are() -> None:
    model = stack()
    model[2].weight = model[0].weight
    model[4].requires_grad_(False)
    plan = tl.plan(model, torch.empty(4, 256), optimizer="SGD", **ON_CPU)
    assert plan.phases[0].kinds["parameter"] == 4 * (2 * 256 * 256 + 3 * 256)
    assert plan.phases[2].kinds["gradient"] == 4 * (256 * 256 + 2 * 256)


def test_dropout_on_a_gpu_keeps_a_byte_for_each_number() -> None:
    model = nn.Sequential(nn.Linear(8, 1024, bias=False), nn.Dropout(0.1))  # the gradient of a bias has its own peak
    layers = tl.plan(model, torch.empty(1024, 8), optimizer="SGD", savings=False).layers
    kept = next(layer for layer in layers if layer.path == "1").kinds["activation"]
    assert kept == 1024 * 1024 * (4 + 1)  # what it returns, and its mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_on_a_gpu_keeps_no_matrix_of_all_pairs(dtype: torch.dtype) -> None:
    def activations(length: int, device: str) -> int:
        model = nn.MultiheadAttention(64, 4, batch_first=True, dtype=dtype, device="meta")
        x = torch.empty(1, length, 64, dtype=dtype, device="meta")
        options: Any = {"input_kwargs": {"need_weights": False}, "optimizer": "SGD", "savings": False, "device": device}
        return tl.plan(model, (x, x, x), **options).phases[0].kinds["activation"]

    assert activations(4096, "cuda") == pytest.approx(4 * activations(1024, "cuda"), rel=0.05)
    assert activations(1024, "cpu") > 4 * 1024 * 1024 * dtype.itemsize


def test_a_recurrent_net_is_planned_for_all_its_ways() -> None:
    x = torch.empty(12, 4, 32)
    for make in (nn.LSTM, nn.GRU, nn.RNN):
        for options in ({"batch_first": True}, {"bidirectional": True}, {"num_layers": 3, "dropout": 0.1}):
            net = make(32, 16, **options)
            shapes = tuple(net(x)[0].shape)
            plan = tl.plan(net, x, optimizer="Adam", savings=False)
            assert plan.peak_bytes > 64 * MB and shapes
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([12, 9, 5, 2]))
    assert tl.plan(gpu_plan.First(nn.LSTM(32, 16)), packed, savings=False).phases[0].name == "forward"


# What it would save


def test_checkpointed_blocks_keep_their_inputs_alone() -> None:
    model, x = Blocks(depth=8), torch.empty(64, 32, 64)
    plain = tl.plan(model, x, optimizer="SGD", **ON_CPU)
    checked = tl.plan(model, x, optimizer="SGD", checkpoint="blocks.*", **ON_CPU)
    # While the last block runs, the inputs of the seven blocks that are not the model's own input.
    assert checked.phases[0].kinds["activation"] == 7 * x.nbytes
    assert plain.phases[0].kinds["activation"] > 8 * 10 * x.nbytes
    assert checked.peak_bytes < plain.peak_bytes / 3


def test_autocast_halves_activations_and_keeps_weights() -> None:
    model, x = stack(512), torch.empty(8192, 512)
    plain, cast = (
        tl.plan(model, x, optimizer="SGD", autocast=way, savings=False).phases[0] for way in (None, "bfloat16")
    )
    assert cast.kinds["parameter"] == plain.kinds["parameter"]
    casts = (x.nbytes + plain.kinds["parameter"]) / 2  # what comes in and the weights, in bfloat16
    assert cast.kinds["activation"] == pytest.approx(plain.kinds["activation"] / 2 + casts, rel=0.02)


def test_checkpointing_under_autocast_casts_again() -> None:
    assert tl.plan(Blocks(), torch.empty(8, 4, 64), optimizer="SGD", autocast="bfloat16", checkpoint="Block")


def test_a_larger_world_size_divides_what_is_sharded_and_leave_activations() -> None:
    model, x = Blocks(256, 16), torch.empty(2, 4, 256)
    one, eight = (tl.plan(model, x, optimizer="AdamW", world_size=size, savings=False) for size in (1, 8))
    for kind in ("parameter", "gradient", "state"):
        assert eight.phases[2].kinds[kind] == pytest.approx(one.phases[2].kinds[kind] / 8, rel=0.01)
    assert eight.phases[0].kinds["activation"] == one.phases[0].kinds["activation"]
    whole = next(layer for layer in eight.layers if layer.path == "(FSDP)") if eight.peak_phase != "step" else None
    assert whole is None or whole.kinds["temporary"] < one.phases[0].kinds["parameter"] / 2


def test_accumulated_gradients_live_through_the_forward_pass() -> None:
    plans = [tl.plan(stack(), torch.empty(4, 256), optimizer="SGD", accumulate=count, **ON_CPU) for count in (1, 4)]
    assert "gradient" not in plans[0].phases[0].kinds
    assert plans[1].phases[0].kinds["gradient"] == plans[1].phases[0].kinds["parameter"]


def test_savings_are_plans_with_the_arguments_that_they_name() -> None:
    model, x = Blocks(128, 6), torch.empty(64, 32, 128)
    plan = tl.plan(model, x, optimizer="AdamW")
    named = {saving.argument: saving.peak_bytes for saving in plan.savings}
    assert list(named)[:4] == ["autocast='bfloat16'", "dtype='bfloat16'", "checkpoint='Block'", "world_size=8"]
    for argument, peak in named.items():
        again = eval(f"tl.plan(model, x, optimizer='AdamW', savings=False, {argument})")
        assert again.peak_bytes == peak, argument


# Sizes and reading


def test_a_model_of_a_hundred_billion_parameters_takes_no_memory() -> None:
    with torch.device("meta"):
        model, x = Blocks(32768, 12), torch.empty(1, 8, 32768)
    plan = tl.plan(model, x, optimizer="AdamW", dtype="bfloat16", savings=False)
    assert plan.parameter_count > 100e9
    assert plan.peak_bytes == pytest.approx(
        plan.parameter_count * 2 * 5, rel=0.01
    )  # weights, gradients, 2 + 1 of AdamW
    assert plan.peak_phase == "step"


def test_without_an_optimizer_only_the_forward_pass_is_planned() -> None:
    model, x = stack(depth=20), torch.empty(1024, 256)
    plan = tl.plan(model, x, **ON_CPU)
    assert [phase.name for phase in plan.phases] == ["forward"]
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert plan.peak_bytes == weights + 3 * x.nbytes  # the input; of each layer what it reads and what it returns


def test_numbers_that_come_from_given_integers_are_known() -> None:
    class Counts(nn.Linear):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            positions = torch.arange(x.shape[1], device=x.device)
            if (positions[:, None] < lengths).all(0).any():  # never: a length is smaller
                raise AssertionError
            return super().forward(x[:, : int(lengths.max())])

    plan = tl.plan(Counts(8, 8), (torch.empty(2, 16, 8, device="meta"), torch.tensor([3, 5])), savings=False)
    assert plan.peak_bytes


def test_a_plan_reads_well_and_goes_through_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plan = tl.plan(Blocks(), torch.empty(64, 32, 64), optimizer="AdamW")
    text = str(plan)
    assert text.startswith("Blocks, 133k parameters, trained with AdamW: ")
    for part in ("forward", "backward *", "blocks.*.grow", "×4", "checkpointing 4 × Block", "FSDP over 8", "Assumed: "):
        assert part in text
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["peak_bytes"] == plan.peak_bytes == max(phase["peak_bytes"] for phase in told["phases"])
    assert sum(layer.total_bytes for layer in plan.layers) == plan.peak_bytes
    assert plan.fits(1 << 40) and not plan.fits(1)


# Mistakes


class Reads(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if x.sum() > 0 else 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tl.plan("net"), NotAModel, "needs an nn.Module, got str"),  # type: ignore[arg-type]
        (lambda: tl.plan(stack(), torch.empty(2, 8)), WrongInputs, "failed on meta tensors of the inputs' shapes"),
        (lambda: tl.plan(stack(), (1, 2, 3)), WrongInputs, "3 were given"),
        (lambda: tl.plan(nn.Sequential(Reads(8, 8)), torch.empty(2, 8)), BadArgument, "0: forward reads a number"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), optimizer="Adan"), BadArgument, "Did you mean 'Adam'"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), optimizer=3), BadArgument, "give an optimizer, a class"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), optimizer=torch.optim.SGD(stack().parameters())), BadArgument,
         "parameters that are not the model's"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), optimizer="SGD", checkpoint="layer.*"), UnknownLayer, "layer.*"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), optimizer="SGD", loss=abs), BadArgument, "one number"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), dtype="int8"), BadArgument, "no type of floating-point"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), world_size=0), BadArgument, "world_size=0"),
        (lambda: tl.plan(stack(), torch.empty(2, 256), device="tpu"), BadArgument, "'cuda' and 'cpu'"),
        (lambda: tl.plan(stack().requires_grad_(False), torch.empty(2, 256), optimizer="SGD"), BadArgument, "to train"),
        (lambda: tl.plan(nn.LazyLinear(3), torch.empty(2, 256)), BadArgument, "no shape before the first pass"),
    ],
)  # fmt: skip
def test_mistakes_are_said(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


# What torch has no rule for on meta


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_planned_in_float32(name: str, device: str) -> None:
    model, inputs = tiny(name)
    made = tl.plan(model, input_kwargs=inputs, optimizer="AdamW", device=device, savings=False)
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    assert made.peak_bytes > 4 * parameters  # with gradients and two averages


GROUPS = torch.tensor([8, 16], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("first", "second", "offs"),
    [
        ((16, 8), (2, 8, 24), GROUPS),
        ((2, 8, 24), (24, 16), GROUPS),
        ((8, 16), (16, 24), GROUPS),
        ((2, 8, 16), (2, 16, 24), None),
    ],
)
def test_a_grouped_product_has_the_shape_that_it_has_for_real(first: Any, second: Any, offs: Any, dtype: Any) -> None:
    operands = torch.zeros(first, dtype=dtype), torch.zeros(second, dtype=dtype)
    real = torch._grouped_mm(*operands, offs=offs)
    made = grouped_matmul(*(operand.to("meta") for operand in operands), offs)
    assert (made.shape, made.stride(), made.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.filterwarnings("ignore")
def test_layers_that_cannot_be_checkpointed_are_left_out_of_the_savings() -> None:
    model, inputs = tiny("T5")  # whose layers fill a cache
    made = tl.plan(model, input_kwargs=inputs, optimizer="AdamW")
    assert "autocast to bfloat16" in {saving.change for saving in made.savings}
    assert any("T5Block is not among the savings" in text and "use_cache=False" in text for text in made.assumptions)
    with pytest.raises(BadArgument, match="checkpoint='T5Block': run again in backward"):
        tl.plan(model, input_kwargs=inputs, optimizer="AdamW", checkpoint="T5Block", savings=False)


class Refused(nn.Module):
    """Calls what runs for real, and has no rule for shapes alone."""

    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.layer, self.operation = nn.Linear(8, 8), operation

    def forward(self, x: Tensor) -> Any:
        return self.operation(self.layer(x))


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda x: x[(x > 0).nonzero()[:, 0]], "aten.nonzero.default in forward"),
        (lambda x: x.unique(), "unique"),
        (lambda x: torch.from_numpy(x.detach().numpy()), "an operation in forward"),
    ],
)
def test_what_has_no_rule_on_meta_is_not_the_inputs_fault(operation: Any, name: str) -> None:
    model, x = Refused(operation), torch.randn(4, 8)
    model(x)
    with pytest.raises(MissingRule, match=r"Refused cannot be planned: .* has no rule for shapes alone") as caught:
        tl.plan(model, x)
    assert name in str(caught.value) and "The inputs are not at fault" in str(caught.value)
    assert not isinstance(caught.value, WrongInputs)


def test_inputs_that_fail_for_real_are_wrong() -> None:
    with pytest.raises(WrongInputs, match="and so it does on real ones: RuntimeError: "):
        tl.plan(stack(), torch.empty(2, 8))


def test_a_list_that_indexes_keeps_its_numbers() -> None:
    class Ends(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            assert 7 in ids[:, [-1, 0]]
            return torch.zeros(2)

    assert tl.plan(Ends(), torch.tensor([[1, 7], [3, 4]]), **ON_CPU).peak_bytes > 0

"""Layers inside compiled code, seen by a pass of the eager program beside it: `torcheer.tap.compiled`."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch._dynamo
from seams import EAGER_STANCE, CompiledCall, PassTap, PreservedState, compiled_parts, copied
from test_host_network_finder import Counting, state_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torcheer as tl
from torcheer.errors import UnknownLayer
from torcheer.inspector import Transport, open_watch

RING = Transport(bytes=8 << 20, drain_secs=60.0)
pytestmark = pytest.mark.filterwarnings("ignore:torcheer.watch:RuntimeWarning")


class Net(nn.Module):
    """A convolution, batch norm, a ReLU that writes in place, dropout, a linear layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.drop, self.mix, self.out = nn.Dropout(0.2), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.relu(self.norm(self.conv(x)))).mean((2, 3))
        return self.out(self.mix(self.mix(x).tanh()))


class Chain(nn.Module):
    """Two layers; torch does not compile an `nn.Sequential` in place as a full graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


LAYERS = ["conv", "norm", "relu", "drop", "mix", "mix:2", "out"]


class Run(NamedTuple):
    """What a training leaves."""

    losses: list[float]
    state: list[object]
    graphs: int
    breaks: int


def whole(net: nn.Module, backend: str, **options: Any) -> nn.Module:
    return torch.compile(net, backend=backend, fullgraph=True, **options)  # type: ignore[return-value]


def in_place(net: nn.Module, backend: str) -> nn.Module:
    net.compile(backend=backend, fullgraph=True)
    return net


def compiled_forward(net: nn.Module, backend: str) -> nn.Module:
    net.forward = torch.compile(net.forward, backend=backend, fullgraph=True)  # type: ignore[method-assign]
    return net


def train(
    make: Callable[[nn.Module, str], nn.Module], backend: str, to: Path | None = None, net: type[nn.Module] = Net,
    **options: Any,
) -> Run:  # fmt: skip
    """Train a compiled model for seven steps, with a watch on every second one if there is a folder for it."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    inner = net()
    model = make(inner, backend)
    optimizer = torch.optim.SGD(inner.parameters(), 0.1, momentum=0.9)
    watch = None if to is None else tl.watch(model, every=2, to=to, transport=RING, **options)
    losses = []
    for _ in range(7):
        loss = model(torch.randn(4, 3, 6, 6)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if watch is not None:
        watch.close()
        assert len(watch.problems) == 1 and "inside compiled code" in watch.problems[0]
    counters = torch._dynamo.utils.counters
    state = [value.tolist() for value in inner.state_dict().values()]
    random = torch.random.get_rng_state().tolist()
    return Run(losses, [*state, random], counters["stats"]["unique_graphs"], len(counters["graph_break"]))


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    assert not EAGER_STANCE.is_on


# -- watching


@pytest.mark.parametrize("make", [whole, in_place, compiled_forward])
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_a_watched_compiled_model_computes_the_same_bits_with_the_same_one_graph(
    make: Callable[..., nn.Module], backend: str, tmp_path: Path
) -> None:
    plain = train(make, backend)
    assert train(make, backend, tmp_path) == plain and (plain.graphs, plain.breaks) == (1, 0)


@pytest.mark.slow  # a compiler runs
def test_a_watched_model_of_inductor_computes_the_same_bits_with_the_same_one_graph(tmp_path: Path) -> None:
    plain = train(whole, "inductor")
    assert train(whole, "inductor", tmp_path) == plain and (plain.graphs, plain.breaks) == (1, 0)
    assert open_watch(tmp_path)["conv", "grad"].steps.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("make", [whole, in_place, compiled_forward])
def test_every_layer_inside_is_watched_with_its_gradient(make: Callable[..., nn.Module], tmp_path: Path) -> None:
    train(make, "aot_eager", tmp_path)
    watched = open_watch(tmp_path)
    for layer in LAYERS:
        for variable in ("output", "grad"):
            assert watched[layer, variable].steps.tolist() == [0, 2, 4, 6], (layer, variable)
    assert not [key for key in watched.keys() if key[1] == "weight_grad"]  # nothing has to stand for the gradients


class Values:
    """A sink that keeps what it is given."""

    def __init__(self, model: nn.Module, names: dict[str, nn.Module], gradients: bool = True) -> None:
        self.model, self.names, self.gradients = model, names, gradients
        self.of: dict[str, Tensor] = {}
        self.failures: list[str] = []
        self.tap = PassTap(self.take, lambda name, error: self.failures.append(f"{name}: {error}"), model)

    def take(self, name: str, call: int, output: Any) -> None:
        for place, tensor in output.tensors:
            label = f"{name}{place}:{call}"
            self.of[label] = tensor.detach().clone()
            if self.gradients and tensor.requires_grad:
                self.tap.follow(tensor, partial(self.take_gradient, f"{label}'"))

    def take_gradient(self, label: str, gradient: Tensor) -> None:
        self.of[label] = gradient.clone()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        self.tap.attach(self.names)
        yield
        self.tap.release()


def seen(inner: nn.Module, model: nn.Module, run: Callable[[], Any], **options: Any) -> dict[str, Tensor]:
    """What a sink is given by the modules of `inner` while `run()` calls `model`."""
    sink = Values(model, {name: module for name, module in inner.named_modules() if name}, **options)
    with sink.listening():
        run()
    sink.tap.close()
    assert not sink.failures
    return sink.of


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("make", [whole, in_place, compiled_forward])
def test_values_and_gradients_are_those_of_the_eager_program(make: Callable[..., nn.Module]) -> None:
    inner, x = Net(), torch.randn(4, 3, 6, 6)
    eager = copy.deepcopy(inner)
    model = make(inner, "aot_eager")

    def step(model: nn.Module) -> None:
        torch.manual_seed(1)
        model(x).square().sum().backward()

    expected = seen(eager, eager, lambda: step(eager))
    values = seen(inner, model, lambda: step(model))
    assert same(dict(sorted(values.items())), dict(sorted(expected.items()))) and len(values) == 2 * len(LAYERS)
    assert all(
        torch.equal(a.grad, b.grad) for a, b in zip(inner.parameters(), eager.parameters()) if a.grad is not None
    )


def test_a_model_that_was_compiled_and_ran_before_is_seen(tmp_path: Path) -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model = whole(inner, "aot_eager")
    model(torch.ones(2, 4))
    assert list(seen(inner, model, lambda: model(torch.ones(2, 4)), gradients=False)) == ["0:1", "1:1"]


def test_blocks_that_are_compiled_one_by_one_are_seen_with_their_gradients() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))

    model = nn.Sequential(block(), block(), nn.Linear(4, 1))
    eager, x = copy.deepcopy(model), torch.randn(3, 4)
    model[0].compile(backend="aot_eager")
    model[1] = whole(model[1], "aot_eager")
    names = ["0.0", "0.1", "1.0", "1.1", "2"]

    def listen(model: nn.Module) -> dict[str, Tensor]:
        paths = {name: model.get_submodule(name.replace("1.", "1._orig_mod.") if model is not eager else name)
                 if name.startswith("1.") else model.get_submodule(name) for name in names}  # fmt: skip
        sink = Values(model, paths)
        with sink.listening():
            model(x).sum().backward()
        sink.tap.close()
        return dict(sorted(sink.of.items()))

    assert same(listen(model), listen(eager))


def test_a_part_that_is_called_twice_goes_on_counting() -> None:
    inner = nn.Sequential(nn.Linear(4, 4))
    model = whole(inner, "aot_eager")
    values = seen(inner, model, lambda: model(model(torch.ones(2, 4))), gradients=False)
    assert list(values) == ["0:1", "0:2"]


class Heads(nn.Module):
    """Returns a dictionary with a pair, of which one may be left out of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, tuple[Tensor, Tensor]]:
        x = self.body(x)
        return {"heads": (self.left(x) * scale, self.right(x))}


@pytest.mark.parametrize("both", [True, False])
def test_outputs_in_containers_are_followed(both: bool) -> None:
    inner, x = Heads(), torch.randn(2, 4)
    eager = copy.deepcopy(inner)
    model = whole(inner, "aot_eager")

    def step(model: nn.Module) -> None:
        left, right = model(x, scale=2.0)["heads"]
        (left.sum() + right.square().sum() if both else left.sum()).backward()

    values, expected = seen(inner, model, lambda: step(model)), seen(eager, eager, lambda: step(eager))
    assert same(dict(sorted(values.items())), dict(sorted(expected.items())))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_outputs_are_seen(mode: Callable[[], Any]) -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    model = whole(inner, "aot_eager")
    with mode():
        assert list(seen(inner, model, lambda: model(torch.ones(2, 4)))) == ["0:1", "1:1"]


def test_sizes_that_change_are_seen_without_another_graph() -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    model = whole(inner, "aot_eager", dynamic=True)
    model(torch.ones(3, 4))
    torch._dynamo.utils.counters.clear()
    for size in (5, 7):
        assert seen(inner, model, lambda size=size: model(torch.ones(size, 4)))["1:1"].shape == (size, 3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


class Checkpointed(nn.Module):
    """Computes its batch norm again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(self.first, x, use_reentrant=False))


def test_checkpointing_inside_is_seen_once_and_leaves_the_same_statistics() -> None:
    torch.manual_seed(0)
    inner, x = Checkpointed(), torch.randn(3, 4, requires_grad=True)
    other = copy.deepcopy(inner)
    plain, watched = whole(other, "aot_eager"), whole(inner, "aot_eager")
    plain(x).sum().backward()
    values = seen(inner, watched, lambda: watched(x).sum().backward())
    assert {"first.1:1", "first.1:1'", "last:1'"} <= values.keys() and "first.1:2" not in values
    assert all(torch.equal(a, b) for a, b in zip(inner.state_dict().values(), other.state_dict().values()))


# -- no trace


def test_a_pass_leaves_no_trace_in_the_model_nor_in_random_state() -> None:
    model, x = Counting().train(), torch.rand(3, 4)
    model(x)
    total, before = model.total, state_of(model)
    version = model.norm.running_mean._version  # type: ignore[union-attr]
    with PreservedState(model).restored():
        model(x).sum().backward()
    assert state_of(model) == before and model.total is total
    assert model.norm.running_mean._version == version  # type: ignore[union-attr]


def test_the_backward_of_a_pass_goes_on_with_the_copies_of_its_forward() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    own, state = model[0].running_mean, PreservedState(model)
    with state.restored():
        model(torch.rand(3, 4))
        written = model[0].running_mean
    assert model[0].running_mean is own and own is not None and not own.any()
    with state.restored():
        assert model[0].running_mean is written is not own
    assert model[0].running_mean is own


def test_tensors_that_modules_share_stay_one_tensor_in_a_pass() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    model[1].running_mean = model[0].running_mean
    with PreservedState(model).restored():
        assert model[1].running_mean is model[0].running_mean


def test_what_a_pass_puts_into_an_empty_container_is_taken_out() -> None:
    class Caches(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.cache: dict[str, Tensor] = {}

        def forward(self, x: Tensor) -> Tensor:
            self.cache["x"] = x
            return super().forward(x)

    model = Caches()
    cache, hooks = model.cache, model._forward_hooks
    with PreservedState(model).restored():
        model(torch.ones(1, 2))
        model.register_forward_hook(lambda *_: None)
    assert model.cache is cache == {} and model._forward_hooks is hooks and not hooks


def test_a_pass_that_writes_into_its_arguments_changes_nothing_for_the_compiled_one() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor, kept: list[Tensor]) -> Tensor:
            x += 1
            kept.append(x)
            return self.fc(x)

    inner, x, kept = Writes(), torch.zeros(2, 3), list[Tensor]()
    model = whole(inner, "eager")
    seen(inner, model, lambda: model(x, kept))
    assert x.tolist() == torch.ones(2, 3).tolist() and len(kept) == 1


def test_copies_of_arguments_keep_what_was_one_tensor_one() -> None:
    x = torch.ones(2, requires_grad=True)
    first, (second, words) = copied((x, [x, {"a": "text"}]), {})
    assert first is second is not x and first.requires_grad and words == {"a": "text"}


def test_after_a_watch_the_model_is_as_it_was() -> None:
    for make in (whole, in_place, compiled_forward):
        model = make(Chain(), "eager")
        before = {key: vars(model).get(key) for key in ("forward", "_compiled_call_impl")}
        with tl.watch(model, every=1, transport=RING):
            model(torch.ones(2, 4)).sum().backward()
            assert len(compiled_parts(model)) == 1
        assert {key: vars(model).get(key) for key in before} == before


def test_what_a_step_held_is_free_after_its_backward() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    model, alive = whole(inner, "aot_eager"), list[Any]()
    sink = Values(model, {"1": inner[1]})
    sink.take = lambda name, call, output: alive.append(weakref.ref(output.value))  # type: ignore[method-assign]
    sink.tap = PassTap(sink.take, lambda *_: None, model)
    gc.disable()
    try:
        with sink.listening():
            model(torch.ones(2, 4)).sum().backward()
        assert len(alive) == 1 and alive[0]() is None
    finally:
        gc.enable()


def test_a_pass_without_gradients_is_free_before_the_compiled_code_needs_memory() -> None:
    alive, freed = list[Any](), list[bool]()

    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            freed.extend(reference() is None for reference in alive)
            return graph(*arguments)

        return run

    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    model = torch.compile(inner, backend=backend, fullgraph=True)
    tap = PassTap(lambda name, call, output: alive.append(weakref.ref(output.value)), lambda *_: None, model)
    tap.attach({"0": inner[0], "2": inner[2]})
    gc.disable()
    try:
        model(torch.ones(2, 4)).sum().backward()
    finally:
        gc.enable()
        tap.close()
    assert freed == [True, True]


def test_two_sinks_share_one_pass() -> None:
    class Once(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling():
                Once.calls += 1
            return x * 2

    inner = nn.Sequential(Once())
    model = whole(inner, "aot_eager")
    first, second = Values(model, {"0": inner[0]}), Values(model, {"0": inner[0]})
    with first.listening(), second.listening():
        model(torch.ones(2))
    assert Once.calls == 1 and same(first.of, second.of) and list(first.of) == ["0:1"]
    first.tap.close()
    assert isinstance(vars(model)["forward"], CompiledCall)  # which the other one holds
    second.tap.close()
    assert not isinstance(vars(model)["forward"], CompiledCall)


# -- what cannot be seen


def test_a_program_that_does_not_run_eagerly_is_said_once_and_the_step_goes_on() -> None:
    class OnlyCompiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling():
                raise RuntimeError("only inside a graph")
            return self.fc(x)

    inner = OnlyCompiled()
    model = whole(inner, "aot_eager")
    sink = Values(model, {"fc": inner.fc})
    for _ in range(2):
        with sink.listening():
            model(torch.ones(1, 2)).sum().backward()
    assert sink.failures == ["fc: only inside a graph"] and not sink.of


def test_sharded_weights_stay_hidden() -> None:
    model = whole(nn.Sequential(nn.Linear(2, 2)), "eager")
    (part,) = compiled_parts(model)
    assert part.refusal() == ""
    part.inner[0].weight._local_tensor = None  # type: ignore[index, union-attr]
    assert "shared out" in part.refusal()


def test_a_collective_is_refused_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:

        class Gathers(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(2, 2)

            def forward(self, x: Tensor) -> Tensor:
                x = self.fc(x)
                if not torch.compiler.is_compiling():
                    torch.distributed.all_reduce(x.detach())
                return x

        monkeypatch.setattr("torcheer.tap.compiled.eager_pass.rank_of", lambda: (0, 2))
        inner = Gathers()
        model = whole(inner, "aot_eager")
        sink = Values(model, {"fc": inner.fc})
        with sink.listening():
            model(torch.ones(1, 2))
    finally:
        torch.distributed.destroy_process_group()
    assert len(sink.failures) == 1 and "waits for other processes" in sink.failures[0]


# -- partial capture


def test_a_partial_capture_sees_layers_inside_and_says_whose_values_they_are() -> None:
    inner, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(2, 4)
    history = tl.log_forward_pass(whole(inner, "aot_eager"), x, layers_to_save=["0", "2"], structure=False)
    assert torch.equal(history["0"].tensor_contents, inner[0](x)) and "eager program" in str(history)
    assert np.array_equal(history["2"].tensor_contents.detach(), inner(x).detach())


def test_a_partial_capture_keeps_gradients_inside() -> None:
    inner = Chain()
    model = in_place(inner, "aot_eager")
    with tl.recording(model, layers_to_save=["first"], structure=False, save_gradients=True) as history:
        model(torch.ones(1, 4)).sum().backward()
    assert torch.equal(history["first"].gradients[0], inner.last.weight)


def test_a_partial_capture_stops_early_inside() -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    save = tl.Save(["0"], stop_early=True)
    assert len(tl.log_forward_pass(whole(inner, "eager"), torch.ones(1, 4), layers_to_save=save, structure=False)) == 1


def test_a_partial_capture_of_a_program_that_fails_eagerly_says_why() -> None:
    class OnlyCompiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            if not torch.compiler.is_compiling():
                raise RuntimeError("only inside a graph")
            return self.fc(x)

    with pytest.raises(UnknownLayer, match=r"'fc' was not reached.*only inside a graph"):
        tl.log_forward_pass(whole(OnlyCompiled(), "eager"), torch.ones(1, 2), layers_to_save=["fc"], structure=False)


def test_a_full_recording_of_a_watched_compiled_model_runs_it_once(tmp_path: Path) -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    model = whole(inner, "eager")
    with tl.watch(model, every=1, to=tmp_path, transport=RING):
        history = tl.log_forward_pass(model, torch.ones(2, 4))
    assert [op.name for op in history if op.kind == "op"] == ["linear", "relu"]

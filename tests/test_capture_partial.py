"""Keeping less: what is kept is what a full capture keeps, and ids of tensors that died name nothing."""

from __future__ import annotations

import gc
import importlib.util
import sys
import textwrap
import weakref
from pathlib import Path

import pytest
import torch
from children import run_python
from fast_cases import fast_first
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import TanhLoop
from seams import LabelPattern
from test_capture_random_programs import STEP, Program
from torch import nn

import torcheer as tl
from torcheer.selection import Selector

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))


def assert_same_run(full, some):
    """The same operations: names, parents, metadata, modules, parameters."""
    assert [op.label for op in some] == [op.label for op in full]
    for ours, other in zip(some.ops, full.ops, strict=True):
        for field in ("parents", "outputs", "stored", "modules", "output_of", "settings", "grad_fn", "inplace", "kind"):
            assert repr(getattr(ours, field)) == repr(getattr(other, field)), (ours.index, ours.name, field)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ["torchvision/resnet18", "transformers/gpt2", "transformers/mamba", "timm/test_vit"])
def test_partial_captures_of_the_zoo_equal_the_full_one(model):
    family, name = model.split("/")
    if importlib.util.find_spec(family) is None:
        pytest.skip(f"{family} is not installed")
    zoo = importlib.import_module(f"zoo_{family}")
    torch.manual_seed(0)
    made, args, kwargs = zoo.build(name, False)
    made.eval()
    with torch.no_grad():
        full = tl.log_forward_pass(made, args, input_kwargs=kwargs)
        paths = [path for path, _ in made.named_modules() if path and path in full][::7]
        labels = [op.label for op in full][5::37]
        for layers in ("none", paths, labels, ["*_1", -3, 4]):
            some = tl.log_forward_pass(made, args, input_kwargs=kwargs, layers_to_save=layers)
            assert_same_run(full, some)
            for op in some:
                if op.is_saved:
                    assert equal(op.tensor_contents, full[op.index].tensor_contents)
        assert some[4].is_saved and some[-3].is_saved


def equal(first, second):
    if isinstance(first, tuple):
        return all(map(equal, first, second))
    return torch.equal(first, second) or torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


CHOICES = {
    "none": "none",
    "from both ends": [-1, 0, -4, 3],
    "names": ["add_*", "mul_1", "relu_2"],
    "predicate": lambda layer: layer.name in ("clone", "reshape"),
    "detached": tl.Save("all", detach=True),
    "cloned": tl.Save(["*"], guard="clone"),
}


# Memory handed to numpy is compared under every name it has; in a full capture that includes views which died here.
STEP_SEEN = STEP.filter(lambda step: step[0] != "numpy")


@given(st.lists(STEP_SEEN, min_size=1, max_size=25), st.sampled_from(sorted(CHOICES)), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_keeps_the_values_that_a_full_capture_keeps(steps, choice, inference):
    model, x = Program(steps), torch.arange(6.0).reshape(2, 3) - 2
    with torch.inference_mode(inference), torch.no_grad():
        torch.manual_seed(0)
        full = tl.log_forward_pass(model, x.clone())
        torch.manual_seed(0)
        try:
            some = tl.log_forward_pass(model, x.clone(), layers_to_save=CHOICES[choice])
        except tl.errors.UnknownLayer as error:
            some = error.history
        assert [op.label for op in some] == [op.label for op in full]
        assert [op.record.parents for op in some] == [op.record.parents for op in full]
        assert [op.outputs for op in some] == [op.outputs for op in full]
        for op in some:
            if op.is_saved:
                assert equal(op.tensor_contents, full[op.index].tensor_contents), op


def test_an_id_used_again_by_an_unseen_tensor_does_not_name_the_old_operation():
    class Unseen(nn.Module):
        """Makes tensors where no recorder looks, at ids of recorded ones that died."""

        def forward(self, x):
            total = x
            for _ in range(40):
                old = x * 2
                key = id(old)
                del old
                with torch._C.DisableTorchFunction():
                    new = [x + 5 for _ in range(8)]
                reused.extend(key == id(tensor) for tensor in new)
                total = total + new[0] + new[1]
            return total

    reused = []
    history = tl.log_forward_pass(Unseen(), torch.ones(3), layers_to_save="none")
    assert any(reused), "no id was used again, so nothing was tested"
    for op in history:
        if op.name == "add":
            assert not any(parent.name == "mul" for parent in op.parents), op
    assert sum(op.kind == "unseen" for op in history) == 80


def test_nothing_that_was_not_asked_for_is_alive_and_nothing_at_all_after_the_history():
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.ReLU())])
    made = []
    for module in model:
        module.register_forward_hook(lambda module, args, out: made.append(weakref.ref(out)))
    gc.collect()
    gc.disable()
    try:
        for layers, count in (("none", 0), (["3", "7"], 2), (["relu_2"], 1), ([-3], 1)):
            made.clear()
            with torch.no_grad():
                history = tl.log_forward_pass(model, torch.rand(2, 8), layers_to_save=layers)
            assert sum(tensor() is not None for tensor in made) == count, layers
            del history
            assert not any(tensor() is not None for tensor in made), layers
    finally:
        gc.enable()


RESIDENT = """
    import gc, pathlib, re, sys, torch
    import torcheer as tl
    from torch import nn
    def resident():
        gc.collect()
        return int(re.search(r"VmRSS:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
    model, x = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]), torch.rand(4096, 256)  # 4 MB each
    options = {"all": {}, "modules": {"layers_to_save": ["1", "4"]}, "structure=False": {"layers_to_save": ["1", "4"],
        "structure": False}, "edits": {"edits": {"linear_2": tl.Edit(tl.edits.scale(2), at="input")}}}[sys.argv[1]]
    kept = []
    def capture():
        history = tl.log_forward_pass(model, x, **options)
        history.compare(history)
        kept.append(history if "leak" in sys.argv else None)
    with torch.no_grad():
        capture(); capture()
        before = resident()
        for _ in range(6):
            capture()
        print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("way", fast_first(["structure=False", "all", "modules", "edits"]))
def test_no_memory_is_held_once_histories_are_dropped(way):
    """Of six captures; one value has 4 MB."""
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed goes back at once
    code = textwrap.dedent(RESIDENT)
    assert float(run_python("-c", code, way, env=settings).stdout) < 4
    if way == "modules":  # and one that is held would be seen
        assert float(run_python("-c", code, way, "leak", env=settings).stdout) > 6 * 8 - 4


def test_a_name_that_is_sure_needs_no_records_and_others_are_settled_when_read():
    model = TanhLoop()
    history = tl.log_forward_pass(model, torch.rand(3, 4), layers_to_save=["tanh_1"])
    assert history.trace.settle_values is not None and history.trace._ops == []
    assert [op.label for op in history if op.is_saved] == [f"tanh_1_2:{number}" for number in (1, 2, 3, 4)]
    assert history.trace.settle_values is None


def test_passes_of_a_looped_layer_are_found_by_a_pattern_with_its_position():
    history = tl.log_forward_pass(TanhLoop(), torch.rand(3, 4), layers_to_save=["tanh_?_2"])
    assert [op.label for op in history if op.is_saved] == [f"tanh_1_2:{number}" for number in (1, 2, 3, 4)]


def test_the_same_function_called_in_a_loop_is_kept_by_its_own_number():
    class Repeats(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 4))

        def forward(self, x):
            return sum(nn.functional.linear(part, self.weight) for part in x.split(1))

    model, x = Repeats(), torch.rand(3, 4)
    full = tl.log_forward_pass(model, x)
    some = tl.log_forward_pass(model, x, layers_to_save=["linear_2:1"])
    assert torch.equal(some["linear_2"].tensor_contents, full["linear_2"].tensor_contents)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [("relu_*", "relu", True), ("relu_*", "linear", False), ("*", "add", True), ("*attn*", "linear", False),
     ("h.*.mlp", "add", False), ("add_?", "add", True), ("add_1:[12]", "add", True), ("*_3", "relu", True),
     ("[ab]dd_1*", "add", True), ("[!a]dd_1*", "add", False), ("add", "add", False), ("*2", "tanh", True)],
)  # fmt: skip
def test_a_pattern_says_whether_it_may_match_a_name_with_any_number(pattern, name, matches):
    assert LabelPattern(pattern).may_match(name) == matches


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("relu*", True),
        ("*", True),
        ("?*", True),
        ("re*u_*", True),
        ("relu_*", True),
        ("relu_1*", False),
        ("*_1", False),
    ],
)
def test_a_pattern_knows_whether_a_labels_number_can_matter(pattern, matches):
    assert LabelPattern(pattern).matches_all("relu") == matches


@pytest.mark.parametrize(
    ("pattern", "every"),
    [("h.*", True), ("h.*.mlp", True), ("h.?", True), ("h.[02]", True), ("*.ln_1", True), ("h.*1", False),
     ("*:2", False), ("h.???", False), ("h?*", False), ("*12*", False), ("features.*.*", True)],
)  # fmt: skip
def test_a_pattern_says_whether_it_may_mean_one_pass_of_a_module(pattern, every):
    paths = ["h", "h.3", "h.12", "h.3.mlp", "h.3.ln_1", "features.0.1"]
    selector = Selector(pattern, "pattern", pattern)
    assert selector.means_every_call == every
    if every:
        for path in paths:
            calls = {selector.matches_call(path, call, "Linear") for call in (1, 2, 12)}
            assert calls == {path in selector.modules_among(dict.fromkeys(paths, "Linear"))}

"""Programs written for TorchLens, versions 1 and 2: every name and option that is taken over, and every refusal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import LayerView, OpView
from torch import nn

import torcheer
import torcheer_originals.torchlens as tl
from torcheer.errors import BadArgument, UnknownLayer
from torcheer_originals.torchlens import older_attributes as attributes
from torcheer_originals.torchlens import older_options


class Recurrent(nn.Module):
    """A convolution, then one block three times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x)).flatten(1)
        for _ in range(3):
            x = self.block(x)
        return x.sum(1)


MODEL, X = Recurrent(), torch.rand(2, 1, 4, 4)


@pytest.fixture(scope="module")
def log() -> Any:
    history = tl.log_forward_pass(MODEL, X, save_gradients=True, random_seed=7)
    history.log_backward(history["output_1"].out.sum())
    return history


# -- attributes ------------------------------------------------------------------------------------------------------

CONV = {
    "tensor_shape": (2, 2, 2, 2), "tensor_dtype": torch.float32, "tensor_fsize": 64, "activation_memory": 64,
    "tensor_fsize_nice": "64 B", "func_applied_name": "conv2d", "func_name": "conv2d", "layer_type": "conv2d",
    "gradfunc": "ConvolutionBackward0", "grad_fn_class_name": "ConvolutionBackward0", "function_is_inplace": False,
    "is_inplace": False, "operation_num": 1, "step_index": 1, "pass_num": 1, "pass_index": 1,
    "layer_passes_total": 1, "layer_label_no_pass": "conv2d_1_1", "layer_label_short": "conv2d_1",
    "layer_label_no_pass_short": "conv2d_1", "layer_label_w_pass": "conv2d_1_1:1", "label_short": "conv2d_1:1",
    "layer_label_w_pass_short": "conv2d_1:1", "has_saved_activations": True, "has_saved_activation": True,
    "has_saved_grad": True, "has_saved_gradient": True, "has_grad": True, "grad_shape": (2, 2, 2, 2),
    "computed_with_params": True, "uses_params": True, "num_param_tensors": 2, "num_params_total": 20,
    "num_params": 20, "parent_param_shapes": [(2, 1, 3, 3), (2,)], "param_shapes": [(2, 1, 3, 3), (2,)],
    "is_input_layer": False, "is_input": False, "is_output_layer": False, "is_output": False,
    "containing_module_origin": "conv:1", "containing_modules_origin_nested": ["conv:1"],
    "is_computed_inside_submodule": True, "in_submodule": True, "module_nesting_depth": 1, "module_call_depth": 1,
    "modules_exited": ["conv"], "output_of_modules": ["conv"], "module_passes_exited": ["conv:1"],
    "output_of_module_calls": ["conv:1"], "is_submodule_output": True, "is_module_output": True,
    "has_parents": True, "has_children": True,
}  # fmt: skip
SAME = {  # TorchLens's name -> ours, where the value is compared with that
    "out": "tensor_contents", "tensor": "tensor_contents", "grad": "grad_contents", "flops_forward": "flops",
    "func_time_elapsed": "elapsed_secs", "func_duration": "elapsed_secs", "source_model_history": "history",
    "source_trace": "history",
}  # fmt: skip
LABELS = ["input_1_0", "conv2d_1_1", "relu_1_2", "flatten_1_3", "linear_1_4", "relu_2_5", "sum_1_10", "output_1_11"]
PASSES = dict.fromkeys(LABELS, 1) | {"linear_1_4": 3, "relu_2_5": 3}
HISTORY = {
    "layer_labels_no_pass": LABELS, "layer_num_passes": PASSES, "layer_num_calls": PASSES,
    "model_max_recurrent_loops": 3, "max_layer_op_count": 3, "model_is_recurrent": True, "is_recurrent": True,
    "model_is_branching": False, "is_branching": False, "input_layers": ["input_1_0"],
    "output_layers": ["output_1_11"], "model_class_name": "Recurrent", "num_tensors_total": 12, "num_tensors": 12,
    "num_tensors_saved": 12, "num_saved_ops": 12, "num_operations": 10, "num_ops": 10, "num_layers": 8,
    "total_params": 92, "num_params": 92, "total_param_tensors": 4, "num_param_tensors": 4, "random_seed_used": 7,
    "random_seed": 7, "module_addresses": ["conv", "block", "block.0", "block.1"],
    "layers_computed_with_params": ["conv2d_1_1", "linear_1_4:1", "linear_1_4:2", "linear_1_4:3"],
}  # fmt: skip


def test_an_operation_has_every_attribute_by_torchlens_name(log: Any) -> None:
    assert {*CONV, *SAME} == set(attributes.OPERATION)
    for view in (log[1], log["conv2d_1"], log.layers[1]):
        assert {name: getattr(view, name) for name in CONV} == CONV
        assert all(getattr(view, theirs) is getattr(view, ours) for theirs, ours in SAME.items() if ours != "flops")
        assert view.flops_forward == view.flops


def test_a_history_has_every_attribute_by_torchlens_name(log: Any) -> None:
    assert {name: getattr(log, name) for name in HISTORY} == HISTORY
    others = set(attributes.HISTORY) - set(HISTORY)
    assert log.layer_list[4].label == "linear_1_4:1" and log.layer_list[-1].is_output_layer
    assert log.layer_labels_w_pass[4:6] == log.op_labels[4:6] == ["linear_1_4:1", "relu_2_5:1"]
    assert list(log.layer_dict_main_keys)[:2] == LABELS[:2] and len(log.layers_with_saved_activations) == 12
    assert list(log.saved_ops) == log.layers_with_saved_activations and log.saved_ops["conv2d_1_1"].is_saved
    assert log.tensor_fsize_total == log.tensor_fsize_saved == log.total_activation_memory == 720
    assert log.saved_activation_memory == 720 and log.total_flops_forward > 0 and log.elapsed_time_total > 0
    assert log.validate_forward_pass() and log.cleanup() is None and callable(log.log_backward)
    assert others == {
        "layer_list", "layer_labels_w_pass", "op_labels", "layer_dict_main_keys", "layers_with_saved_activations",
        "saved_ops",
        "tensor_fsize_total", "tensor_fsize_saved", "total_activation_memory", "saved_activation_memory",
        "total_flops_forward", "elapsed_time_total", "log_backward", "validate_forward_pass", "cleanup",
    }  # fmt: skip


def test_of_a_layer_with_several_passes_common_attributes_are_read_and_others_are_asked_for_by_pass(log: Any) -> None:
    linear = log["linear_1"]
    assert linear.tensor_shape == (2, 8) and linear.num_params == 72
    with pytest.raises(torcheer.errors.AmbiguousLayer, match="'linear_1:1' … 'linear_1:3'"):
        _ = linear.out
    assert torch.equal(log["linear_1:2"].out, log.layer_list[6].tensor_contents)


@pytest.mark.parametrize("name", attributes.ELSEWHERE)
def test_an_attribute_with_another_meaning_says_what_to_write(name: str, log: Any) -> None:
    for view in (log, log[1], log["linear_1"]):
        with pytest.raises(AttributeError, match="TorchLens's name: here"):
            getattr(view, name)


def test_an_unknown_attribute_is_answered_with_the_nearest_of_both_names(log: Any) -> None:
    with pytest.raises(AttributeError, match="Did you mean 'tensor_shape'"):
        _ = log[1].tensor_shap
    with pytest.raises(AttributeError, match="Did you mean 'layer_list'"):
        _ = log.layers_list
    with pytest.raises(AttributeError):
        _ = log._anything


def test_no_name_of_torchlens_hides_one_of_ours() -> None:
    assert not [name for name in attributes.OPERATION if hasattr(OpView, name) or hasattr(LayerView, name)]
    assert not [name for name in attributes.HISTORY if hasattr(torcheer.ModelHistory, name)]


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [{}, older_options.RENAMED], ids=["first", "2.36"])
def test_every_older_option_of_log_forward_pass_is_taken(names: dict[str, str], tmp_path: Path) -> None:
    assert set(older_options.OlderOptions.__annotations__) == {*OPTIONS, *older_options.RENAMED}
    newer = {first: name for name, first in names.items()}
    options: Any = {newer.get(name, name): value for name, value in OPTIONS.items()} | {
        "vis_outpath": tmp_path / "graph"
    }
    history = tl.log_forward_pass(MODEL, X, **options)
    assert (tmp_path / "graph.svg").read_text().startswith("<svg")
    assert history["relu_1"].out.dtype == torch.float64 and not history["relu_1"].out.requires_grad
    assert history.random_seed == 3


OPTIONS = {
    "activation_postfunc": lambda value: value.double(), "detach_saved_tensors": True, "output_device": "cpu",
    "random_seed": 3, "vis_mode": "rolled", "vis_outpath": "graph", "vis_fileformat": "svg", "vis_nesting_depth": 1,
    "vis_direction": "topdown", "vis_save_only": True, "vis_buffer_layers": False, "keep_unsaved_layers": True,
    "mark_input_output_distances": False, "save_function_args": True, "save_source_context": True,
    "save_rng_states": True, "num_context_lines": 7, "detect_loops": True, "unwrap_when_done": True, "verbose": False,
}  # fmt: skip


def test_a_drawing_is_nested_as_deep_as_was_asked(tmp_path: Path) -> None:
    for depth, shown in ((1, "block"), (1000, "linear")):
        tl.log_forward_pass(MODEL, X, vis_opt="rolled", vis_outpath=tmp_path / "a.txt", vis_nesting_depth=depth)
        assert shown in (tmp_path / "a.txt").read_text()
    assert "linear" not in _drawn(tmp_path, vis_nesting_depth=1) and "linear" in _drawn(tmp_path)


def _drawn(tmp_path: Path, **options: Any) -> str:
    tl.show_model_graph(MODEL, X, vis_outpath=tmp_path / "b.txt", **options)
    return (tmp_path / "b.txt").read_text()


def test_the_default_format_of_a_drawing_is_theirs(tmp_path: Path) -> None:
    tl.show_model_graph(MODEL, X, vis_outpath=tmp_path / "graph", save_only=True)
    assert (tmp_path / "graph.pdf").read_bytes().startswith(b"%PDF")


REFUSED: dict[str, tuple[Any, str]] = {
    "keep_unsaved_layers": (False, "every operation stays"),
    "mark_input_output_distances": (True, "distances are not computed"),
    "detect_loops": (False, "passes are always found"),
    "mark_layer_depths": (True, r"mark_layer_depths=True\): distances are not computed"),
    "recurrence_detection": (False, r"recurrence_detection=False\): passes are always found"),
    "vis_node_overrides": ({}, "tl.Style"),
    "save_activations_to": ("x", r"history\.save\(folder\)"),
    "halt": (None, "stop_early=True"),
    "backend": ("jax", "PyTorch only"),
    "vis_outpaths": ("x", "Did you mean 'vis_path'"),
    "vis_mode": ("folded", "use 'none', 'rolled'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_cannot_be_met_says_what_to_do(name: str) -> None:
    value, text = REFUSED[name]
    with pytest.raises(BadArgument, match=text):
        tl.log_forward_pass(MODEL, X, **{name: value})


@pytest.mark.parametrize(("layers", "saved"), [(["relu"], 4), ("relu", 4), (["relu", "conv"], 5), (None, 0), ([], 0)])
def test_a_function_by_its_bare_name_is_all_its_operations(layers: Any, saved: int) -> None:
    assert tl.log_forward_pass(MODEL, X, layers_to_save=layers).num_tensors_saved == saved


def test_a_bare_name_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(UnknownLayer, match="'tanh'"):
        torcheer.log_forward_pass(MODEL, X, layers_to_save=["tanh"])
    with pytest.raises(UnknownLayer, match="'reluu'"):
        torcheer.log_forward_pass(MODEL, X, layers_to_save=["reluu"])


# -- verbs -----------------------------------------------------------------------------------------------------------


def test_the_verbs_of_both_versions_do_what_they_did(tmp_path: Path) -> None:
    log = tl.trace(MODEL, X)
    assert isinstance(log, tl.ModelHistory) and log["relu_1_2"].out.shape == log[2].shape
    assert torch.equal(tl.pluck(MODEL, X, "relu_1_2"), log["relu_1"].out)
    assert torch.equal(tl.pluck(MODEL, X, tl.module("conv")), log["conv"].out)
    assert list(tl.extract(MODEL, X, ["conv", "relu_1"])) == ["conv", "relu_1"]
    assert torch.equal(tl.extract(MODEL, X, {"first": "conv"})["first"], log["conv"].out)
    tl.save(log, tmp_path / "log")
    assert tl.load(tmp_path / "log").layer_labels == log.layer_labels
    assert tl.validate_forward_pass(MODEL, X) is True and tl.validate_saved_activations is tl.validate
    assert tl.get_model_metadata(MODEL, X).num_saved_ops == 0 and tl.log_model_metadata is tl.get_model_metadata
    assert "conv" in tl.summary(MODEL, X)
    tl.extract_dataset(MODEL, X, ["conv"], output_dir=tmp_path / "data", progress=False)
    assert torcheer.load(tmp_path / "data")["conv"].shape == (2, 2, 2, 2)  # type: ignore[index]


def test_the_report_of_a_validation_is_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert tl.validate_forward_pass(MODEL, X, random_seed=1, verbose=True)
    assert capsys.readouterr().out


SELECTORS = {
    "func": (tl.func("relu"), {2, 5, 7, 9}),
    "in_module": (tl.in_module("block"), set(range(4, 10))),
    "module": (tl.module("conv"), {1}),
    "label": (tl.label("relu_1_2"), {2}),
    "contains": (tl.contains("linear"), {4, 6, 8}),
    "where": (tl.where(lambda layer: layer.tensor_shape == (2,)), {10, 11}),
    "and": (tl.func("relu") & tl.in_module("block"), {5, 7, 9}),
    "or": (tl.func("flatten") | tl.module("conv"), {1, 3}),
    "not": (~tl.in_module("block") & ~tl.func("sum") & tl.where(lambda layer: layer.kind == "op"), {1, 2, 3}),
    "list": ([tl.func("flatten"), "conv"], {1, 3}),
}


@pytest.mark.parametrize("name", SELECTORS)
def test_a_selector_saves_what_it_says(name: str) -> None:
    selector, positions = SELECTORS[name]
    log = tl.trace(MODEL, X, save=selector)
    assert {op.index for op in log if op.is_saved} == positions, selector


EDITS: dict[str, tuple[Any, Any]] = {
    "zero_ablate": (tl.zero_ablate(), lambda x: x * 0),
    "mean_ablate": (tl.mean_ablate(), lambda x: torch.full_like(x, float(x.mean()))),
    "mean_ablate of another": (tl.mean_ablate(torch.full((3,), 2.0)), lambda x: torch.full_like(x, 2.0)),
    "scale": (tl.scale(0.5), lambda x: x * 0.5),
    "clamp": (tl.clamp(min=0.1, max=0.2), lambda x: x.clamp(0.1, 0.2)),
    "steer": (tl.steer(torch.ones(2), 3.0), lambda x: x + 3),
    "replace_with": (tl.replace_with(torch.full((2, 2, 2, 2), 4.0)), lambda x: torch.full_like(x, 4.0)),
    "noise": (tl.noise(0.0), lambda x: x),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("site", [tl.label("relu_1"), tl.func("relu") & ~tl.in_module("block")], ids=["key", "test"])
def test_an_edit_changes_what_it_says(name: str, site: Any) -> None:
    edit, expected = EDITS[name]
    with torch.no_grad():
        plain, edited = (tl.trace(MODEL, X, intervene=spec) for spec in (None, tl.when(site, edit)))
    assert torch.allclose(edited["relu_1"].out, expected(plain["relu_1"].out))


@pytest.mark.parametrize("name", tl.ELSEWHERE)
def test_a_verb_that_is_not_here_says_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match="TorchLens's name"):
        getattr(tl, name)


def test_gradients_and_sites_that_cannot_be_chosen_are_refused() -> None:
    with pytest.raises(BadArgument, match="choose by save="):
        tl.trace(MODEL, X, save_grads=tl.func("relu"))
    with pytest.raises(BadArgument, match=r"when\(func"):
        tl.trace(MODEL, X, intervene=tl.func("relu"))
    with pytest.raises(BadArgument, match="one seed"):
        tl.noise(1.0, seed=3)


def test_what_means_the_same_in_torcheer_is_torcheers() -> None:
    assert tl.load is torcheer.load and tl.ModelHistory is torcheer.ModelHistory
    assert set(dir(tl)) & set(torcheer.__all__) == {"ModelHistory", "extract", "load", "log_forward_pass", "validate"}


def test_the_tables_of_attributes_are_loaded_when_the_first_is_read() -> None:
    program = (
        "import sys, torch, torcheer_originals.torchlens as tl\n"
        "history = tl.log_forward_pass(torch.nn.ReLU(), torch.ones(1)); history['relu_1'].shape, str(history)\n"
        "table = 'torcheer_originals.torchlens.older_attributes'\n"
        "assert table not in sys.modules and history.layer_list and table in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_an_import_of_it_torcheer_has_its_own_attributes_alone() -> None:
    program = (
        "import torch, torcheer as tl\n"
        "history = tl.log_forward_pass(torch.nn.ReLU(), torch.ones(1))\n"
        "for view in (history, history[1], history['relu_1']):\n"
        "    try: view.num_tensors_total\n"
        "    except AttributeError as error: assert 'has no attribute' in str(error), error\n"
        "    else: raise SystemExit('it is there')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert not [name for name in attributes.HISTORY if hasattr(torcheer.ModelHistory, name)]

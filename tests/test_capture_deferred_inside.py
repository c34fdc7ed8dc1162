"""The inside of a fused kernel waits until it is read, and is what it would have been at once."""

import dataclasses
import gc

import pytest
import torch
from seams import deferred_inside
from test_capture_fused_attention import CASES, WAYS, X, attention, encoder, layer
from torch import nn

import torcheer as tl
from torcheer.errors import ValueUnavailable

pytestmark = pytest.mark.filterwarnings("ignore")
SAVED = {"everything": "all", "nothing": "none", "a pattern": "*_1", "the last": [-1]}


@pytest.fixture
def at_once(monkeypatch):
    """A switch: from here on nothing is deferred."""
    return lambda: monkeypatch.setattr(deferred_inside.FusedCall, "defer", lambda self: False)


def capture(model, args, kwargs, way="no_grad", **options):
    with WAYS[way](model), tl.recording(model, **options) as history:
        model(*args, **kwargs)
    return history


def deferred(history):
    return len(history.trace.recorder.deferred)


def twice(model, x=X, **options):
    """The second capture of a model: for it every pattern is known."""
    capture(model, (x,), {}, **options)
    return capture(model, (x,), {}, **options)


def facts(history):
    return [dataclasses.replace(op, elapsed_secs=0.0) for op in history.ops]


def values(history, op):
    try:
        return history.trace.value(op.index, 0) if op.outputs else None
    except ValueUnavailable as error:
        return str(error)


def is_same(first, second):
    if not isinstance(first, torch.Tensor):
        return first == second
    if first.is_nested:
        return all(torch.equal(a, b) for a, b in zip(first.unbind(), second.unbind(), strict=True))
    return torch.equal(first, second) and first.stride() == second.stride()


@pytest.mark.parametrize("name", CASES)
def test_operations_module_calls_and_values_are_those_of_a_capture_that_computes_at_once(name, at_once):
    build, arguments = CASES[name]
    model = build()
    model.eval() if name != "layer whose dropout is awake" else None
    args, kwargs = arguments(X)
    capture(model, args, kwargs)
    later = {title: capture(model, args, kwargs, layers_to_save=layers) for title, layers in SAVED.items()}
    at_once()
    for title, layers in SAVED.items():
        expected = capture(model, args, kwargs, layers_to_save=layers)
        assert facts(later[title]) == facts(expected) and later[title].info.notes == expected.info.notes
        assert later[title].trace.runs() == expected.trace.runs()
        assert all(is_same(values(later[title], op), values(expected, op)) for op in expected.ops), title


@pytest.mark.parametrize("way", ["inference_mode", "frozen", "autocast", "default device"])
@pytest.mark.parametrize("build", [layer, lambda: encoder(depth=2, nested=False, norm_first=True)])
def test_so_they_are_in_other_modes(build, way, at_once):
    model = build().eval()
    capture(model, (X,), {}, way)
    later = capture(model, (X,), {}, way)
    assert bool(deferred(later)) == (way in ("inference_mode", "frozen"))
    at_once()
    expected = capture(model, (X,), {}, way)
    assert facts(later) == facts(expected)
    assert all(is_same(values(later, op), values(expected, op)) for op in expected.ops)


@pytest.mark.parametrize("build", [layer, lambda: encoder(depth=3, norm=True, nested=False)])
def test_text_tables_and_pictures_compute_nothing_and_are_the_same(build, at_once):
    model = build().eval()
    history = twice(model)
    assert deferred(history) > 10
    shown = (str(tl.draw(history)), history.layer_labels, len(history), list(history.to_pandas()["shape"]))
    assert str(history) and str(history.summary()) and all(history.trace.is_saved(op.index, 0) for op in history.ops)
    assert deferred(history) > 10
    at_once()
    expected = twice(model)
    assert shown == (
        str(tl.draw(expected)), expected.layer_labels, len(expected), list(expected.to_pandas()["shape"])
    )  # fmt: skip


def test_the_second_of_two_equal_blocks_is_deferred_in_the_first_capture_already():
    deferred_inside._patterns.clear()
    model = encoder(depth=3, nested=False).eval()
    history = capture(model, (X,), {})
    beside = [op for op in history.ops if "beside" in op.note and "fwd" not in op.name]
    assert 0 < deferred(history) == len(beside) * 2 // 3


def test_reading_one_value_computes_the_rows_of_its_kernel_only():
    history = twice(encoder(depth=3, nested=False).eval())
    before = deferred(history)
    value = history["layers.1.linear1"].tensor_contents
    assert value.shape == (3, 5, 32) and deferred(history) == before * 2 // 3


def test_what_changes_in_the_model_afterwards_changes_no_value(at_once):
    model = layer().eval()
    history = twice(model)
    model.train()
    model.linear1 = nn.Linear(16, 32)
    model.activation = torch.tanh
    model.to(torch.float64)
    read = [values(history, op) for op in history.ops]
    at_once()
    expected = twice(layer().eval())
    assert all(map(is_same, read, [values(expected, op) for op in expected.ops]))


def test_a_weight_written_in_place_afterwards_makes_the_inside_unavailable_and_never_wrong():
    model = layer().eval()
    history = twice(model)
    with torch.no_grad():
        model.linear1.weight.zero_()
    assert not history["linear1"].is_saved
    with pytest.raises(ValueUnavailable, match="written in place after the pass"):
        history["linear1"].tensor_contents  # noqa: B018


class Overwrites(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = layer()

    def forward(self, x):
        y = x * 2
        out = self.part(y)
        y.zero_()
        return out + y


def test_an_input_that_the_model_overwrites_is_kept_for_the_inside(at_once):
    model = Overwrites().eval()
    history = twice(model)
    assert deferred(history)
    read = [values(history, op) for op in history.ops]
    at_once()
    expected = twice(model)
    assert all(map(is_same, read, [values(expected, op) for op in expected.ops]))


def test_validation_replays_the_inside_too():
    history = twice(encoder(depth=2, nested=False).eval())
    assert deferred(history)
    report = history.validate()
    assert report and not deferred(history) and not report.failures and report.equal > 40


def test_another_shape_another_dtype_or_another_mask_is_no_known_pattern(at_once):
    model = attention().eval()
    runs = [
        ((X, X, X), {}), ((X[:1], X[:1], X[:1]), {}), ((X, X, X), {"need_weights": False}),
        ((X.transpose(0, 1),) * 3, {}), ((X, X, X), {"average_attn_weights": False}),
    ]  # fmt: skip
    later = [facts(capture(model, *run)) for run in (*runs, *runs)]
    at_once()
    assert later == [facts(capture(model, *run)) for run in (*runs, *runs)]


def test_patterns_keep_no_model_and_no_tensor_alive():
    model = layer().eval()
    history = twice(model)
    weight = torch.utils.weak.WeakTensorKeyDictionary({model.linear1.weight: 1})
    del history, model
    gc.collect()
    assert not len(weight)


def test_a_deferred_history_is_freed_without_the_collector():
    model = layer().eval()
    capture(model, (X,), {})
    gc.disable()
    try:
        history = capture(model, (X,), {})
        kept = torch.utils.weak.WeakTensorKeyDictionary({history["linear1"].tensor_contents: 1})
        del history
        assert not len(kept)
    finally:
        gc.enable()

"""One grammar for what people type: every form of inputs and of layers means the same to every verb."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from models import NamedLayers
from seams import Places, call_arguments
from tiny_decoders import Decoder, ids
from torch import Tensor, nn

import torcheer as tl
from torcheer import selection
from torcheer.errors import BadArgument, UnknownLayer, WrongInputs

A, B = torch.ones(2, 3), torch.full((2, 3), 2.0)


class One(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class Two(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x + y)


class Pair(nn.Module):
    def forward(self, pair: Any) -> Tensor:
        return torch.relu(pair[0] + pair[1])


class Batch(nn.Module):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return torch.relu(batch["left"] + batch["right"])


class Listed(nn.Module):
    def forward(self, images: list[Tensor], targets: Any = None) -> Tensor:
        return torch.relu(torch.stack(images).sum(0))


class Many(nn.Module):
    def forward(self, *parts: Tensor) -> Tensor:
        return torch.relu(torch.stack(parts).sum(0))


class Passes(nn.Module):
    """Passes everything on, as DistributedDataParallel does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class Form(NamedTuple):
    """A model, what is given to it, and what it then computes."""

    model: Callable[[], nn.Module]
    inputs: Any
    input_kwargs: dict[str, Any] | None
    result: Tensor


FORMS = {
    "tensor": Form(One, A, None, A),
    "tuple": Form(Two, (A, B), None, A + B),
    "list": Form(Two, [A, B], None, A + B),
    "tuple of one": Form(One, (A,), None, A),
    "tuple as one argument": Form(Pair, (A, B), None, A + B),
    "list as one argument": Form(Pair, [A, B], None, A + B),
    "list that forward asks for": Form(Listed, [A, B], None, A + B),
    "tuple to *parts": Form(Many, (A, B, B), None, A + B + B),
    "dict of parameters": Form(Two, {"x": A, "y": B}, None, A + B),
    "mapping of parameters": Form(Two, UserDict(x=A, y=B), None, A + B),
    "dict as one argument": Form(Batch, {"left": A, "right": B}, None, A + B),
    "keywords": Form(Two, None, {"x": A, "y": B}, A + B),
    "tensor and keywords": Form(Two, A, {"y": B}, A + B),
    "dict and keywords": Form(Two, {"x": A}, {"y": B}, A + B),
    "dict to a wrapper": Form(lambda: Passes(Two()), {"x": A, "y": B}, None, A + B),
    "dict to a wrapped one that takes it": Form(lambda: Passes(Batch()), {"left": A, "right": B}, None, A + B),
}


def logged(form: Form, tmp_path: Path) -> Tensor:
    history = tl.log_forward_pass(form.model(), *given(form), input_kwargs=form.input_kwargs)
    return history["relu_1"].tensor_contents


def validated(form: Form, tmp_path: Path) -> Tensor:
    assert tl.validate(form.model(), *given(form), input_kwargs=form.input_kwargs)
    return form.result


def drawn(form: Form, tmp_path: Path) -> Tensor:
    drawing = tl.draw(form.model(), *given(form), input_kwargs=form.input_kwargs, path=tmp_path / "a.txt")
    assert "relu" in (tmp_path / "a.txt").read_text() and drawing.boxes
    return form.result


def shown(form: Form, tmp_path: Path) -> Tensor:
    from seams import capture_for_show

    history = capture_for_show(form.model(), *(given(form) or ((),)), form.input_kwargs)
    return history["relu_1"].tensor_contents


def described(form: Form, tmp_path: Path) -> Tensor:
    view = tl.live(form.model(), inputs=form.inputs, input_kwargs=form.input_kwargs, open_server=False, browser=False)
    try:
        assert view.host.network is not None and view.host.network.layers
    finally:
        view.close()
    return form.result


def extracted(form: Form, tmp_path: Path) -> Tensor:
    if form.input_kwargs:
        pytest.skip("data of an extraction come as batches: there are no keywords beside them")
    batch = form.inputs
    transform = (lambda sample: sample) if isinstance(batch, (tuple, list)) else None
    loader = torch.utils.data.DataLoader([batch], batch_size=None, collate_fn=lambda sample: sample)
    found: Any = tl.extract(
        form.model(), loader, layers=["relu_1"], to=tmp_path / "x", transform=transform, progress=False
    )
    return torch.tensor(found["relu_1"][:])


def given(form: Form) -> tuple[Any, ...]:
    return () if form.inputs is None else (form.inputs,)


VERBS = {
    "log_forward_pass": logged, "validate": validated, "draw": drawn, "show": shown, "live": described,
    "extract": extracted,
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_inputs_means_the_same_to_every_verb(form: str, verb: str, tmp_path: Path) -> None:
    assert torch.equal(VERBS[verb](FORMS[form], tmp_path), FORMS[form].result)


@pytest.mark.parametrize("verb", [name for name in VERBS if name != "extract"])
def test_what_no_forward_takes_is_refused_with_what_it_takes(verb: str, tmp_path: Path) -> None:
    form = Form(Two, (A, B, B), None, A)
    if verb == "live":  # which shows the model all the same, and says why it could not be run
        view = tl.live(Two(), inputs=form.inputs, open_server=False)
        view.close()
        return
    with pytest.raises(WrongInputs, match=r"Two.forward\(x, y\): 3 were given: too many positional arguments"):
        VERBS[verb](form, tmp_path)


def test_one_parameter_given_twice_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"x: given in the inputs and in input_kwargs"):
        call_arguments(Two(), {"x": A, "y": B}, {"x": A})


def test_keywords_must_be_a_dict() -> None:
    with pytest.raises(BadArgument, match="input_kwargs is a Tensor"):
        call_arguments(Two(), A, B)  # type: ignore[arg-type]


# -- which layers: every form with every verb ------------------------------------------------------------------------


X = torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6)


def is_conv(layer: Any) -> bool:
    return bool(layer.module_type == "Conv2d")


MODEL = NamedLayers()

CONVS = {"features.0", "features.2"}
# What is given, its form, and the modules whose results it selects ("" for an operation outside of any).
LAYERS: dict[str, tuple[Any, str, set[str]]] = {
    "all": ("all", "all", {"", "features.0", "features.1", "features.2", "head"}),
    "none": ("none", "none", set()),
    "label": ("conv2d_2", "label", {"features.2"}),
    "full label": ("conv2d_2_3", "label", {"features.2"}),
    "module": ("features.2", "module", {"features.2"}),
    "pass of a label": ("conv2d_2:1", "pass", {"features.2"}),
    "call of a module": ("head:1", "pass", {"head"}),
    "position": (3, "position", {"features.2"}),
    "position from the end": (-3, "position from the end", {"head"}),
    "slice": (slice(1, 3), "slice", {"features.0", "features.1"}),
    "pattern of modules": ("features.[02]", "pattern", CONVS),
    "pattern of labels": ("conv2d_*", "pattern", CONVS),
    "pattern of classes": ("Conv?d", "pattern", CONVS),
    "class": (nn.Conv2d, "class", CONVS),
    "name of a class": ("Conv2d", "class", CONVS),
    "module itself": (MODEL.head, "object", {"head"}),
    "function": ("conv2d", "function", CONVS),
    "predicate": (is_conv, "predicate", CONVS),
    "list": (["head", nn.ReLU, is_conv], "predicate", {"head", "features.1", *CONVS}),
    "list of one": (("head",), "module", {"head"}),
}


def saved_layers(layers: Any, tmp_path: Path) -> set[str]:
    history = tl.log_forward_pass(MODEL, X, layers_to_save=layers)
    return {op.module for op in history if op.is_saved}


def returned_layers(layers: Any, tmp_path: Path) -> set[str]:
    history = tl.log_forward_pass(MODEL, X, layers_to_save=layers, structure=False)
    return {op.module for op in history if op.is_saved}


def found_layers(layers: Any, tmp_path: Path) -> set[str]:
    return {op.module for op in tl.log_forward_pass(MODEL, X).find(layers)}


def edited_layers(layers: Any, tmp_path: Path) -> set[str]:
    keys = layers if isinstance(layers, list | tuple) else [layers]
    if isinstance(layers, slice) and sys.version_info < (3, 12):
        pytest.skip("a slice is no key of a dict in this Python")
    history = tl.log_forward_pass(MODEL, X, edits={key: tl.edits.scale(2) for key in keys})
    return {op.module for op in history if op.edited}


def extracted_layers(layers: Any, tmp_path: Path) -> set[str]:
    extraction: Any = tl.extract(MODEL, X, layers=layers, to=tmp_path / "x", progress=False)
    history = tl.log_forward_pass(MODEL, X)
    for name in extraction.layers:
        assert torch.equal(torch.tensor(extraction[name][:]), history[name].tensor_contents)
    return {history[name].module for name in extraction.layers}


def watched_layers(layers: Any, tmp_path: Path) -> set[str]:
    model = MODEL.train()
    with tl.watch(model, layers, what="output", rules=None, to=tmp_path / "w") as watch:
        model(X).sum().backward()
    assert not watch.problems
    log: Any = tl.load(tmp_path / "w")
    return {layer for layer, variable in log.keys() if variable == "output"}


def live_layers(layers: Any, tmp_path: Path) -> set[str]:
    view = tl.live(MODEL, layers, inputs=X, open_server=False, browser=False)
    try:
        return {place.layer for places in view._probes._described.places.by_call.values() for place in places}
    finally:
        view.close()


def swept_layers(layers: Any, tmp_path: Path) -> set[str]:
    return {place.path for place in Places(MODEL, layers, "patch_sweep").named.values()}


LAYER_VERBS: dict[str, Callable[[Any, Path], set[str]]] = {
    "layers_to_save": saved_layers, "layers_to_save (structure=False)": returned_layers, "find": found_layers,
    "edits": edited_layers, "extract": extracted_layers, "watch": watched_layers, "live": live_layers,
    "patch_sweep": swept_layers,
}  # fmt: skip


@pytest.mark.parametrize("case", LAYERS)
@pytest.mark.parametrize("verb", LAYER_VERBS)
def test_every_form_means_the_same_to_every_verb_or_is_refused_by_one_text(
    verb: str, case: str, tmp_path: Path
) -> None:
    layers, form, modules = LAYERS[case]
    follows_modules = verb in ("watch", "live", "layers_to_save (structure=False)", "patch_sweep")
    if form in selection.REFUSALS[verb]:
        check_refusal(verb, layers, form, tmp_path)
    elif case == "pattern of labels" and follows_modules:
        with pytest.raises(UnknownLayer, match=r"nothing among [56] modules matches 'conv2d_\*'"):
            LAYER_VERBS[verb](layers, tmp_path)
    else:
        modules = modules - {""} if follows_modules else modules
        if verb == "live":  # an activation is shown as its convolution's
            modules = {{"features.1": "features.0"}.get(name, name) for name in modules}
        assert LAYER_VERBS[verb](layers, tmp_path) == modules


def check_refusal(verb: str, layers: Any, form: str, tmp_path: Path) -> None:
    with pytest.raises(BadArgument) as caught:
        LAYER_VERBS[verb](layers, tmp_path)
    refused = selection.REFUSALS[verb]
    honoured = ", ".join(example for other, (_, example) in selection.FORMS.items() if other not in refused)
    key = layers[-1] if isinstance(layers, list) else layers
    what = f"{verb} cannot take {selection.FORMS[form][0]}, {key!r}"
    assert str(caught.value) == f"{what}: {refused[form]}. It takes {honoured}"


# Roles are those of a decoder: what is given, its form, and the modules whose results it selects.
ROLES: dict[str, tuple[Any, str, set[str]]] = {
    "stream": ("resid[1]", "role", {"blocks.1"}),
    "stream from the end": ("resid[-1]", "role", {"blocks.2"}),
    "all streams": ("resid[*]", "role", {"blocks.0", "blocks.1", "blocks.2"}),
    "attention": ("attn[1]", "role", {"blocks.1.attn.c_proj"}),
    "logits": ("unembed", "role", {"head"}),
    "queries": ("attn[1].q", "part", {"blocks.1.attn.c_attn"}),
}


@pytest.mark.parametrize("case", ROLES)
@pytest.mark.parametrize("verb", LAYER_VERBS)
def test_a_role_means_the_same_to_every_verb_or_is_refused_by_one_text(
    verb: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "MODEL", Decoder())
    monkeypatch.setattr(sys.modules[__name__], "X", ids())
    layers, form, modules = ROLES[case]
    if form in selection.REFUSALS[verb]:
        check_refusal(verb, layers, form, tmp_path)
    elif verb == "live":  # which shows a block's parts instead of the block
        assert LAYER_VERBS[verb](layers, tmp_path) <= modules | {f"{name}.mlp.2" for name in modules}
    else:
        assert LAYER_VERBS[verb](layers, tmp_path) == modules

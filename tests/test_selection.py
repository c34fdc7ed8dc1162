"""Which layers: what each form means, predicates, refusals; `test_grammar` has every form with every verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import NamedLayers
from seams import choose
from torch import Tensor, nn

import torcheer as tl
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.selection import FORMS, REFUSALS, ModuleLayer, Selector, config_fault, matches_value, parse, parse_all

X = torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6)


def is_conv(layer: Any) -> bool:
    return bool(layer.module_type == "Conv2d")


MODEL = NamedLayers()


@pytest.mark.parametrize("verb", ["capture (config)", "watch (config)", "extract (config)"])
def test_a_config_refuses_what_it_cannot_hold(verb: str) -> None:
    for value in (is_conv, "lambda layer: True", [1, is_conv]):
        text = config_fault(value, verb)
        assert text.startswith(f"{verb} cannot take a predicate, ") and "a config holds texts and numbers" in text
    assert "the list of layers is empty" in config_fault([], verb)
    for value in (True, 1.5, None, {"a": 1}):
        assert "names no layer; give 'all', " in config_fault(value, verb)
    assert not config_fault(["all", "features.*", "Conv2d", 3], verb)


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        ("feature.0", UnknownLayer, "no layer or module named 'feature.0' among 5 modules. Did you mean 'features.0'"),
        ("Conv3d", UnknownLayer, "Did you mean 'Conv2d'"),
        (nn.Linear(1, 1), UnknownLayer, "the Linear given is no part of this model of 5 modules"),
        (1.5, BadArgument, "1.5 names no layer; give 'all', 'none', 'relu_1'"),
        (True, BadArgument, "True names no layer"),
        (lambda name, module: True, BadArgument, "a predicate receives one layer and reads layer.label"),
        ({"a": 1}, BadArgument, "a mapping has no meaning here"),
        ("lambda layer: True", BadArgument, "is a string; give the function itself"),
    ],
)  # fmt: skip
def test_what_names_no_layer_is_refused_with_what_works(key: Any, error: type[Exception], text: str) -> None:
    modules = {name: module for name, module in MODEL.named_modules() if name}
    with pytest.raises(error) as caught:
        parse_all(key, modules, "layers_to_save")
    assert text in str(caught.value)


# -- predicates ------------------------------------------------------------------------------------------------------

FACTS = {
    "label": lambda layer: layer.label == "relu_2_6",
    "module": lambda layer: layer.module == "" and layer.name == "relu",
    "shape": lambda layer: layer.name == "relu" and layer.shape == (2, 3),
    "dtype": lambda layer: layer.dtype == "torch.float32" and layer.index == 6,
    "flops": lambda layer: layer.name == "relu" and layer.flops == 6,
    "pass": lambda layer: layer.pass_number == 1 and layer.layer_label == "relu_2_6",
    "parents": lambda layer: "linear_1_5" in layer.parent_layers,
    "children": lambda layer: "output_1_7" in layer.child_layers,
    "value": lambda layer: layer.name == "relu" and layer.tensor_contents.shape == (2, 3),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_predicate_gets_the_same_layer_while_a_model_runs_and_afterwards(fact: str, tmp_path: Path) -> None:
    history = tl.log_forward_pass(MODEL, X)
    assert history.find(FACTS[fact]).labels == ["relu_2_6"]
    kept = tl.log_forward_pass(MODEL, X, layers_to_save=FACTS[fact])
    assert [op.label for op in kept if op.is_saved] == ["relu_2_6"]
    assert torch.equal(kept["relu_2"].tensor_contents, history["relu_2"].tensor_contents)
    assert list(tl.extract(MODEL, X, layers=FACTS[fact], to=tmp_path / "x", progress=False).layers) == ["relu_2_6"]  # type: ignore[union-attr]


def test_a_predicate_that_cannot_be_answered_yet_releases_what_it_did_not_want() -> None:
    history = tl.log_forward_pass(MODEL, X, layers_to_save=lambda layer: layer.label.startswith("conv2d"))
    assert [op.label for op in history if op.is_saved] == ["conv2d_1_1", "conv2d_2_3"]


def test_a_label_asked_by_a_predicate_is_the_final_one_also_in_a_loop() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(4):
                x = torch.relu(self.fc(x))
            return x

    history = tl.log_forward_pass(Loop(), torch.ones(1, 3), layers_to_save=lambda layer: layer.label.endswith(":3"))
    assert [op.label for op in history if op.is_saved] == ["linear_1_1:3", "relu_1_2:3"]


def test_a_predicate_that_nothing_fits_says_so() -> None:
    with pytest.raises(UnknownLayer, match="nothing among 8 operations matches"):
        tl.log_forward_pass(MODEL, X, layers_to_save=lambda layer: layer.label == "tanh_1")


def test_an_edit_by_a_predicate_needs_what_is_known_at_once() -> None:
    with pytest.raises(BadArgument, match=r"asked for layer\.label, which is known only when the run is over"):
        tl.log_forward_pass(MODEL, X, edits={lambda layer: layer.label == "relu_1": tl.edits.zero()})


def test_a_watch_says_what_a_predicate_can_ask_before_the_model_ran() -> None:
    with pytest.raises(BadArgument, match=r"asked for layer\.shape, .* only layer\.label, layer\.module"):
        tl.watch(NamedLayers(), lambda layer: layer.shape == (2, 3))
    choice = choose(NamedLayers(), lambda layer: any(part.kind == "parameter" for part in layer.stored))
    assert list(choice.modules) == ["features.0", "features.2", "head"]
    layer = ModuleLayer("head", "head", "Linear")
    assert not hasattr(layer, "__array__") and (layer.label, layer.stored) == ("head", ())


# -- passes, wrappers, values ----------------------------------------------------------------------------------------


def test_a_class_is_exactly_that_class() -> None:
    modules = dict(MODEL.named_modules())
    assert parse(nn.Conv2d, modules, "find").matches_call("features.0", 1, "Conv2d")
    assert not parse(nn.Conv2d, modules, "find").matches_call("features.0", 1, "LazyConv2d")


def test_a_module_inside_a_compiled_wrapper_is_found_by_itself() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    inner = model[0]
    model[0] = torch.compile(inner, backend="eager")  # type: ignore[call-overload]
    history = tl.log_forward_pass(model, torch.ones(1, 3), layers_to_save=inner)
    assert history.find(inner).labels == ["linear_1_1"] and history["linear_1"].is_saved


def test_a_label_means_in_an_extraction_what_it_means_in_a_history(tmp_path: Path) -> None:
    """An extraction kept fused kernels closed and counted other operations: `linear_1` was another layer."""
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)).eval()
    x = torch.randn(4, 5, 8)
    with torch.no_grad():
        history = tl.log_forward_pass(model, x)
    last = history["1"].layer_label
    for key in (last, history["1"].index, "linear_3"):
        extraction: Any = tl.extract(model, x, layers=[key], to=tmp_path / str(key), progress=False)
        (name,) = extraction.layers
        assert torch.equal(torch.tensor(extraction[name][:]), history[key].tensor_contents)


@pytest.mark.parametrize(
    ("pattern", "layer", "variable", "expected"),
    [
        ("features.*/output", "features.0", "output", True),
        ("features.*/output", "features.0", "grad", False),
        ("features.*", "features.0", "grad", True),
        ("head", "head", "weight", True),
        ("*", "loss", "metric", True),
        ("head/grad", "head", "output", False),
    ],
)
def test_patterns_over_watched_values(pattern: str, layer: str, variable: str, expected: bool) -> None:
    assert matches_value(pattern, layer, variable) is expected


PATTERNS = json.loads((Path(__file__).parent / "data" / "patterns.json").read_text())


@pytest.mark.parametrize(("pattern", "name", "expected"), PATTERNS)
def test_patterns_match_as_on_the_page(pattern: str, name: str, expected: bool) -> None:
    """The page's own reader is tested on the same file."""
    assert Selector(pattern, "pattern", pattern).matches_name([name]) is expected


# -- the table in the docs -------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[1] / "docs" / "selection.md"


def test_the_table_of_forms_and_verbs_is_in_the_docs(request: pytest.FixtureRequest) -> None:
    overwrite = request.config.getoption("--overwrite")
    table = [["form", "example", *(f"`{verb}`" for verb in REFUSALS)], ["---"] * (2 + len(REFUSALS))]
    for form, (name, example) in FORMS.items():
        marks = ["–" if form in refused else "✓" for refused in REFUSALS.values()]
        table.append([name, f"`{example}`", *marks])
    lines = ["|" + "|".join(row) + "|" if row[0] == "---" else f"| {' | '.join(row)} |" for row in table]
    text = DOCS.read_text()
    written = [line for line in text.partition("## Roles")[0].splitlines() if line.startswith("|")]
    if overwrite:
        DOCS.write_text(text.replace("\n".join(written), "\n".join(lines)))
        written = lines
    assert written == lines

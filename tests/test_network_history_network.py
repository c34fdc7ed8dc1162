"""One network: the same model has the same layers and arrows wherever it is shown."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fast_cases import fast_first
from models import SkipBlock
from network_models import ARCHITECTURES
from seams import Network, PassObserver, PassSource, capture_for_show, describe_pass, network_in, to_json, walk
from torch import Tensor, nn

import torcheer as tl

pytestmark = pytest.mark.usefixtures("one_thread")

Drawn = tuple[dict[str, Any], set[tuple[str, ...]]]  # layers and arrows


def drawn(layers: Any, projections: Any) -> Drawn:
    shapes = {layer.name: (layer.shape, layer.kind, layer.view) for layer in layers}
    return shapes, {(one.name, one.sender, one.receiver, one.kind, one.type) for one in projections}


def of(network: Network | None) -> Drawn:
    assert network is not None
    return drawn(network.layers, network.projections)


def live(model: nn.Module, inputs: tuple[Any, ...], **keywords: Any) -> Network:
    """What `tl.live` finds in the user's own first call."""
    with tl.live(model, open_server=False) as view:
        model(*inputs, **keywords)
        assert view.host.network is not None, view.problems
        return view.host.network


def shown(model: nn.Module, inputs: tuple[Any, ...], folder: Path, **keywords: Any) -> Drawn:
    """What `tl.show` draws."""
    capture_for_show(model, inputs, keywords or None).save(folder, parameters=True)
    net = PassSource(folder).net
    assert net is not None
    return drawn([placed.layer for placed in net.layers], net.projections)


def stored(network: Network, folder: Path) -> Network | None:
    """What a run keeps of it."""
    folder.mkdir(exist_ok=True)
    (folder / "network.json").write_text(json.dumps(to_json(network)))
    return network_in(folder)


@pytest.mark.parametrize("mode", fast_first(["train", "eval"]))
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_is_the_same_network_live_shown_and_stored(name: str, mode: str, tmp_path: Path) -> None:
    build, make = ARCHITECTURES[name]
    torch.manual_seed(0)
    model, inputs = build().train(mode == "train"), make()
    found = live(model, inputs)
    assert of(found) == shown(model, inputs, tmp_path / "pass")
    assert stored(found, tmp_path / "run") == found
    assert len(found.layers) > 1 and "Input" in {layer.kind for layer in found.layers}
    names = [layer.name for layer in found.layers]
    assert len(set(names)) == len(names) and {end for arrow in of(found)[1] for end in arrow[1:3]} <= set(names)
    assert len({one.name for one in found.projections}) == len(found.projections)


# Hooks cannot tell what is computed from no input, what a module computes beside a dropout, nor that a parameter beside
# its only module makes a block of two layers.
UNKNOWN_TO_HOOKS = {"GPT": {"places"}, "dropout inside": {"part"}, "scaled": {"blocks.0", "blocks.1", "blocks.2"}}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_hooks_see_the_modules_that_a_recording_sees(name: str) -> None:
    build, make = ARCHITECTURES[name]
    torch.manual_seed(0)
    model, inputs = build(), make()
    inputs = tuple(value.requires_grad_() if value.is_floating_point() else value for value in inputs)
    observer = PassObserver(model)
    observer.begin(inputs, {})
    model(*inputs)
    observer.end()
    found, expected = describe_pass(observer.model_pass.ops).network, live(build(), make())
    modules = {node.path for node in expected.modules} - UNKNOWN_TO_HOOKS.get(name, set())
    shapes = {layer.name: layer.shape for layer in expected.layers if layer.kind == "Input"
              or (layer.name.partition(":")[0] in modules and layer.kind != "Attention")}  # fmt: skip
    assert shapes.items() <= {layer.name: layer.shape for layer in found.layers}.items()


def test_the_cnn_and_the_encoder_that_were_two_networks_are_one(tmp_path: Path) -> None:
    class Cnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.hidden, self.out = nn.Conv2d(1, 4, 3), nn.Linear(144, 10), nn.Linear(10, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.relu(self.hidden(F.relu(self.conv(x)).flatten(1))))

    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    for number, (model, x, count) in enumerate(
        [(Cnn(), torch.rand(2, 1, 8, 8), 4), (encoder, torch.rand(3, 7, 16), 13)]
    ):
        layers, _ = shown(model, (x,), tmp_path / str(number))
        assert list(layers) == [layer.name for layer in live(model, (x,)).layers] and len(layers) == count


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_history_knows_the_same_layers_in_the_same_order(name: str) -> None:
    build, make = ARCHITECTURES[name]
    history = tl.log_forward_pass(build(), make())
    description = describe_pass(list(history.trace.ops()))
    for node in description.network.modules:
        assert (history.modules[node.path].type, history.modules[node.path].calls) == (node.kind, node.calls)
    before = -1
    for source in description.sources.values():
        assert source.net.index > before
        before = source.net.index
        if source.call is not None:
            outputs = history.modules[source.call.address].outputs_of(source.call.call)
            assert source.net.index in [value.record.parent for value in outputs]
    summary = str(history.summary())
    assert all(f"{node.path} " in summary for node in description.network.modules)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_summary_text_tree_and_graph_have_the_modules_of_the_network_in_its_order_and_its_repeats(name: str) -> None:
    build, make = ARCHITECTURES[name]
    history = tl.log_forward_pass(build().eval(), make())
    nodes = describe_pass(list(history.ops)).network.modules
    tree = [(node.path, node.kind) for node in nodes]
    rows = [row for row in history.summary() if row.calls]
    assert [(row.address, row.type, row.calls) for row in rows] == [(*pair, n.calls) for pair, n in zip(tree, nodes)]
    drawing = tl.draw(history, depth="all")
    found = re.findall(r"(?:─ |\[)([\w.]+)(?::\d+)? \((\w+)\)", drawing.text())
    assert list(dict.fromkeys(found)) == tree
    views = list(walk(drawing.picture.root, 0, 0))
    boxes = {re.sub(r":\d+", "", address) for view, *_, address, depth in views if depth and (view.name or view.open)}
    assert {path for path, _ in tree} <= boxes
    folded = walk(tl.draw(history, depth=12).picture.root, 0, 0)
    stacks = [view.stack or view.plan for view, *_ in folded if view.stack or (view.plan and view.plan.sort == "stack")]
    repeats = [node.repeats for node in nodes if node.repeats > 1]
    assert sorted(plan.face.times for plan in stacks if plan) == sorted(repeats)


def test_equal_modules_side_by_side_are_no_repeat() -> None:
    build, make = ARCHITECTURES["experts"]
    assert {node.repeats for node in live(build(), make()).modules} == {1}  # ×3 before: one does not follow the other


def test_the_tree_folds_equal_blocks_and_counts_calls() -> None:
    build, make = ARCHITECTURES["gallery: translator"]
    tree = {node.path: node for node in live(build(), make()).modules}
    assert tree["transformer.encoder.layers.0"].repeats == 19 and tree["transformer.encoder.layers.5"].repeats == 0
    assert tree["transformer.encoder.layers.0.self_attn"].parent == "transformer.encoder.layers.0"
    build, make = ARCHITECTURES["long loop"]
    assert {node.path: node.calls for node in live(build(), make()).modules} == {"cell": 9, "out": 1}


def test_a_residual_stream_has_two_arrows_into_each_sum_however_deep() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)) for _ in range(12))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = x + block(x)
            return x

    network = live(Deep(), (torch.rand(2, 4),))
    into = [one.sender for one in network.projections if one.receiver == "blocks.11.0"]
    assert into == ["blocks.10.1", "blocks.9.1"] and len(network.projections) < 3 * len(network.layers)


def test_a_sum_of_three_has_three_arrows() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.out = (nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.a(x) + self.b(x) + self.c(x))

    network = live(Sum(), (torch.rand(2, 4),))
    assert {one.sender for one in network.projections if one.receiver == "out"} == {"a", "b", "c"}


ZOO = [
    "torchvision/resnet18", "torchvision/mobilenet_v3_small", "torchvision/swin_v2_t", "timm/test_vit",
    "transformers/bert", "transformers/gpt2", "transformers/t5", "transformers/llama", "transformers/vit",
    "transformers/whisper",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_libraries_are_one_network_too(name: str, mode: str, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    family, _, name = name.partition("/")
    torch.manual_seed(0)
    try:
        model, inputs, keywords = importlib.import_module(f"zoo_{family}").build(name, mode == "train")
    except ImportError as error:
        pytest.skip(str(error))
    model.train(mode == "train")
    assert of(live(model, inputs, **keywords)) == shown(model, inputs, tmp_path / "pass", **keywords)


# -- what modules return that hold others ----------------------------------------------------------------------------


class _Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = SkipBlock(4), SkipBlock(4)
        self.plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2), nn.Dropout())

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.b(self.a(x)))


def _network_of_blocks() -> Network:
    return describe_pass(list(tl.log_forward_pass(_Blocks().eval(), torch.rand(3, 4)).ops)).network


def test_what_a_block_returned_is_a_layer_where_none_of_its_layers_has_it() -> None:
    names = [layer.name for layer in _network_of_blocks().layers]
    assert names == ["Input", "a.first", "a.second", "a", "b.first", "b.second", "b", "plain.0", "plain.1"]
    assert [layer.name for layer in _network_of_blocks().layers if layer.holds] == ["a", "b"]


def test_a_module_knows_the_layer_that_has_what_it_returned() -> None:
    outputs = {node.path: node.output for node in _network_of_blocks().modules}
    assert outputs["a"] == "a" and outputs["a.second"] == "a.second" and outputs["plain"] == "plain.1"


def test_a_residual_stream_flows_from_block_to_block() -> None:
    arrows = {(arrow.sender, arrow.receiver) for arrow in _network_of_blocks().projections}
    assert {("Input", "a"), ("a.second", "a"), ("a", "b.first"), ("a", "b"), ("b", "plain.0")} <= arrows
    assert not {("a.second", "b.first"), ("Input", "b")} & arrows


class _EagerAttention(nn.Module):
    """Attention as transformers writes it out: it returns its weights too, which it has read itself."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = (self.query(x) @ x.transpose(1, 2)).softmax(-1)
        return self.out(weights @ self.value(x)) + x, weights


def test_of_attention_that_also_returns_its_weights_the_output_is_what_it_shows() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.head = _EagerAttention(), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attn(x)[0])

    network = describe_pass(list(tl.log_forward_pass(Model(), torch.rand(2, 3, 4)).ops)).network
    shapes = {layer.name: layer.shape for layer in network.layers}
    assert {node.path: node.output for node in network.modules}["attn"] == "attn"
    assert shapes["attn"] == (3, 4)
    assert ("attn", "head") in {(arrow.sender, arrow.receiver) for arrow in network.projections}


class _Named(nn.Module):
    """An input that is called as a module is."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.out(self.source(source) + target)


def test_an_input_named_as_a_module_is_has_the_same_name_in_drawing_and_network() -> None:
    history = tl.log_forward_pass(_Named(), (torch.rand(1, 4), torch.rand(1, 4)))
    names = [layer.name for layer in describe_pass(list(history.ops)).network.layers[:2]]
    assert names == ["source (input)", "target"]
    assert all(name in tl.draw(history).svg() for name in names)


def test_an_attention_that_the_model_returns_is_its_result_and_not_its_averaged_weights() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)[0]

    network = describe_pass(tl.log_forward_pass(Attends(), torch.rand(1, 9, 8)).trace.ops()).network
    assert {layer.name: layer.shape for layer in network.layers} == {
        "Input": (9, 8), "attention": (9, 8), "attention.weights": (2, 9, 9)
    }  # fmt: skip

"""A part of what a model returned that holds many tensors is one output, and blocks that give to it repeat (×N)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from seams import Item, describe_pass, details_of, fold_pass, hover_label
from torch import Tensor, nn

import torcheer as tl
from torcheer.drawing import Drawing
from torcheer.history import ModelHistory

pytestmark = pytest.mark.usefixtures("one_thread")


class Attention(nn.Module):
    """Gives its key and value to a cache, as decoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.project(x).chunk(3, -1)
        key, value = key.tanh(), value.tanh()
        return x + nn.functional.scaled_dot_product_attention(query, key, value), key, value


class Decoder(nn.Module):
    def __init__(self, blocks: int = 3, *, answer: Callable[[Tensor, list[Any], list[Tensor]], Any]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Attention() for _ in range(blocks)])
        self.head = nn.Linear(4, 5)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        cache, states = [], [x]
        for block in self.blocks:
            x, key, value = block(x)
            cache.append((key, value))
            states.append(x)
        return self.answer(self.head(x), cache, states)


def recorded(answer: Callable[[Tensor, list[Any], list[Tensor]], Any], blocks: int = 3) -> ModelHistory:
    torch.manual_seed(0)
    return tl.log_forward_pass(Decoder(blocks, answer=answer), torch.rand(2, 3, 4))


def with_cache(logits: Tensor, cache: list[Any], states: list[Tensor]) -> dict[str, Any]:
    return {"logits": logits, "cache": cache}


def outputs(drawing: Drawing) -> list[Item]:
    return [item for item in drawing.picture.scene.items if item.look == "output"]


def repeats(history: ModelHistory) -> list[int]:
    """How many blocks the boxes of the model stand for; graph, text and the tree of modules say the same."""
    root = fold_pass(history.facts).root
    found = [len(run) for run in root.runs]
    drawing = tl.draw(history, depth=1, direction="down")
    assert sorted(view.face.times for view in drawing.picture.root.inside if view.face.times > 1) == sorted(found)
    assert all(f"×{times}" in drawing.text() for times in found)
    nodes = describe_pass(list(history.ops)).network.modules
    assert sorted(node.repeats for node in nodes if node.repeats > 1) == sorted(found)
    return found


class Pair(NamedTuple):
    first: Tensor
    second: list[Tensor]


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.keys = tensor


@pytest.mark.parametrize(
    ("answer", "places"),
    [
        (lambda x: x, [()]),
        (lambda x: (x, [x + 1, x + 2]), [(0,), (1, 0), (1, 1)]),
        (lambda x: {"a": x, "b": {"c": (x + 1,)}}, [("a",), ("b", "c", 0)]),
        (lambda x: Pair(x, [x + 1]), [("first",), ("second", 0)]),
        (lambda x: {"cache": [Holder(x), Holder(x + 1)]}, [("cache", 0, "keys"), ("cache", 1, "keys")]),
        (lambda x: {1: x, 2.5: x}, [(1,), ("2.5",)]),
    ],
)
def test_an_output_knows_its_place_in_what_the_model_returned(
    answer: Callable[[Tensor], Any], places: list[tuple[int | str, ...]]
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return answer(x * 2)

    history = tl.log_forward_pass(Model(), torch.rand(3))
    assert [op.returned_at for op in history.ops if op.kind == "output"] == places


def test_an_operation_that_is_no_output_has_no_place() -> None:
    assert all(op.returned_at == () for op in recorded(with_cache).ops if op.kind != "output")


def test_the_place_is_saved_and_printed(tmp_path: Path) -> None:
    history = recorded(with_cache)
    history.save(tmp_path / "pass")
    assert [op.returned_at for op in tl.load(tmp_path / "pass").ops] == [op.returned_at for op in history.ops]
    assert "an output of the model: cache[0][1]" in str(history["output_3"])


def test_every_tensor_of_a_cache_stays_an_operation_of_the_history() -> None:
    history = recorded(with_cache)
    labels = [history[n].label for n in range(-7, 0)]
    assert [label.rpartition("_")[0] for label in labels] == [f"output_{n}" for n in range(1, 8)]


def test_a_cache_is_one_output_with_one_edge() -> None:
    drawing = tl.draw(recorded(with_cache), depth=1, direction="down")
    logits, cache = outputs(drawing)
    assert (logits.kind, cache.kind, cache.body, len(cache.ops)) == ("logits", "cache", "6 tensors", 6)
    layout = drawing.picture.root.layout
    assert layout is not None
    assert sum(route.target == layout.entries + layout.children - 1 for route in layout.routes) == 1


def test_blocks_that_give_to_a_cache_repeat() -> None:
    assert repeats(recorded(with_cache)) == [3]
    assert repeats(recorded(lambda logits, cache, states: (logits, cache))) == [3]


def test_unrolled_every_block_has_its_edge_to_the_cache() -> None:
    history = recorded(with_cache)
    for direction in ("down", "right"):
        drawing = tl.draw(history, depth="all", direction=direction)
        (stack,) = [plan for plan in drawing.picture.scene.plans if plan.sort == "stack"]
        last = stack.layout.entries + stack.layout.children + stack.layout.exits - 1
        routes = [route for route in stack.layout.routes if route.target == last]
        assert [route.source for route in routes] == [1, 2, 3]
        assert len({route.net for route in routes}) == 1  # they share a lane, and a wrap cuts one line


def test_blocks_whose_results_are_all_returned_repeat_up_to_the_last_that_is() -> None:
    assert repeats(recorded(lambda logits, cache, states: {"logits": logits, "states": states})) == [3]
    assert repeats(recorded(lambda logits, cache, states: {"logits": logits, "states": states[:-1]})) == [2]


def test_a_block_that_gives_nothing_to_the_cache_is_another_block() -> None:
    assert repeats(recorded(lambda logits, cache, states: {"logits": logits, "cache": cache[1:]}, blocks=4)) == [3]


def test_a_handful_of_tensors_without_a_name_stay_outputs_of_their_own() -> None:
    drawing = tl.draw(nn.LSTM(3, 4), torch.rand(5, 2, 3))
    assert [item.kind for item in outputs(drawing)] == ["output 1", "output 2", "output 3"]
    joined = outputs(tl.draw(recorded(lambda logits, cache, states: (logits, cache))))
    assert [item.kind for item in joined] == ["output 1", "output 2 … 7"]


def test_blocks_that_feed_all_later_ones_do_not_repeat() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(4)])

        def forward(self, x: Tensor) -> dict[str, Any]:
            features = [x]
            for layer in self.layers:
                features.append(layer(torch.stack(features).sum(0)))
            return {"features": features[1:]}

    assert repeats(tl.log_forward_pass(Dense(), torch.rand(2, 4))) == []


def test_a_tensor_that_is_returned_twice_is_read_twice_from_where_it_was_computed() -> None:
    history = recorded(lambda logits, cache, states: {"last": states[-1], "states": states})
    last, states = outputs(tl.draw(history))
    assert last.parents[0][0] == states.parents[-1][0]
    assert repeats(history) == [3]


def test_a_part_that_holds_only_parameters_has_no_edge() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.ParameterList([torch.rand(2), torch.rand(2)])

        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"sum": x + 1, "rows": list(self.rows)}

    drawing = tl.draw(Model(), torch.rand(2))
    assert [item.kind for item in outputs(drawing)] == ["sum", "rows"]
    assert "rows: 2 tensors 2\n" in drawing.text()


def test_text_hover_and_details_say_how_many_tensors_of_which_shape() -> None:
    history = recorded(with_cache)
    drawing = tl.draw(history)
    assert "cache: 6 tensors 2×3×4  ← tanh_1_3 … tanh_6_16" in drawing.text()
    cache = outputs(drawing)[1]
    assert hover_label(history, cache).endswith("\n(2, 3, 4) ×6")
    assert details_of(history, cache)[2] == [
        ("returned as", "cache[0][0] … cache[2][1]"),
        ("tensors", "6, 576 B"),
        ("result", "(2, 3, 4) ×6"),
    ]

"""Pictures of random graphs keep the promises of the layout."""

from __future__ import annotations

from random import Random

import pytest
from drawing_checks import faults
from fast_cases import fast_first
from hypothesis import given, settings
from hypothesis import strategies as st
from seams import Item, Scene, picture, place_shapes, plan_scene, write_svg

from torcheer.drawing import Style
from torcheer.records import ModuleCall

LOOKS = ("op", "op", "pill", "merge", "module")


@st.composite
def graphs(draw: st.DrawFn, size: int = 40) -> list[Item]:
    """Random items, as hypothesis wants to choose them."""
    count, chance, loops = draw(st.integers(1, size)), draw(st.sampled_from((0.2, 0.5, 0.8))), draw(st.integers(0, 2))
    return random_items(draw(st.randoms(use_true_random=False)), count, chance, loops)


def random_items(random: Random, count: int, chance: float, loops: int) -> list[Item]:
    """Items in nested modules, each with parents before it; some loops, several results, long and short names."""
    items: list[Item] = []
    path: tuple[ModuleCall, ...] = ()
    for number in range(count):
        while path and random.random() < 0.35:
            path = path[:-1]
        while len(path) < 4 and random.random() < 0.3:
            outer = path[-1].address + "." if path else ""
            kind = random.choice(("Block", "Layer", "AVeryLongModuleClassNameThatGoesOn"))
            path = (*path, ModuleCall(f"{outer}{random.choice('abc')}{number}", 1, kind))
        name = random.choice(("", "x", "a_rather_long_attribute_name"))
        item = Item(number, name, (number,), path, random.choice(LOOKS), "relu")
        item.kind = random.choice(("view", "add", "conv2d", "transpose"))
        item.body = random.choice(("", "3×3 pad 1"))
        item.shapes = ((1, 2),) * random.choice((1, 1, 1, 3))
        item.carries = (int(random.random() < 0.7),) * len(item.shapes)
        nets = {}
        for _ in range(random.choice((1, 1, 1, 2, 2, 3, 6))):
            if items:
                back = 1 if random.random() < chance else random.randrange(1, len(items) + 1)
                parent = items[-back]
                nets[parent.number, random.randrange(len(parent.shapes))] = random.choice(("", "query"))
        item.parents = list(nets.items())
        items.append(item)
    for _ in range(loops):
        one, other = sorted((random.randrange(count), random.randrange(count)))
        if (other, 0) not in dict(items[one].parents):
            items[one].parents.append(((other, 0), ""))
    return items


def scene_of(items: list[Item]) -> Scene:
    return plan_scene(items)


ways = st.sampled_from(("down", "right", "auto"))
depths = st.sampled_from((1, 2, 3, "all", None))


@settings(max_examples=120, deadline=None)
@given(graphs(), ways, depths)
def test_boxes_keep_apart_and_edges_keep_off_boxes_and_titles(
    items: list[Item], way: str, depth: int | str | None
) -> None:
    found = picture(scene_of(items), depth=depth, direction=way, style=Style())
    assert faults(found) == []


@settings(max_examples=30, deadline=None)
@given(graphs(), ways, depths)
def test_the_same_graph_gives_the_same_svg(items: list[Item], way: str, depth: int | str | None) -> None:
    texts = [
        write_svg(
            place_shapes(
                picture(scene_of(items), depth=depth, direction=way, style=Style()), header=["m"], theme="auto"
            )
        )
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("seed", "count", "way"),
    fast_first([(1, 600, "down"), (2, 2000, "right"), (3, 5000, "down")]),
)
def test_large_nested_graphs_keep_the_promises_too(seed: int, count: int, way: str) -> None:
    items = random_items(Random(seed), count, 0.9, 2)
    found = picture(scene_of(items), depth="all", direction=way, style=Style())
    assert found.boxes == count and faults(found) == []

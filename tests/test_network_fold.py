"""One fold: graph, text, tree of modules and summary show the same boxes, repeats and edges."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from fake_trace import FakeTrace
from network_models import ARCHITECTURES
from seams import BoxView, OpLeaf, describe_pass, fold_pass, walk
from seams import FoldedBox as Box
from torch import Tensor, nn

import torcheer as tl
from torcheer.drawing import Drawing
from torcheer.history import ModelHistory

pytestmark = pytest.mark.usefixtures("one_thread")

Shown = Counter[tuple[str, int]]  # address of a module or function, and ×N


def captured(name: str, mode: str = "eval") -> ModelHistory:
    build, make = ARCHITECTURES[name]
    torch.manual_seed(0)
    return tl.log_forward_pass(build().train(mode == "train"), make())


def in_graph(drawing: Drawing) -> Shown:
    """The modules and functions of the graph; of a stack its last."""
    found: Shown = Counter()
    for view, *_, address, depth in walk(drawing.picture.root, 0, 0):
        is_bare = view.face.look in ("parameter", "buffer", "input", "output") or (
            view.plan is not None and view.plan.sort == "pill"
        )
        if depth and view.name and not is_bare:
            found[re.sub(r":\d+", "", address), view.face.times] += 1
    return found


def in_text(drawing: Drawing) -> Shown:
    """The modules and functions of the text; of equal ones the last."""
    found: Shown = Counter()
    for line in drawing.text().splitlines()[1:]:
        match = re.search(r"─ (?:\S+ … )?(\S+) \(\w+\)(?: ×(\d+))?(?:  |$)", line)
        leaf = re.search(r"─ \S+(?: ×(\d+))?  .*\[(\S+) \(\w+\)\]", line)
        assert not (match and leaf)
        if match or leaf:
            address, times = (match[1], match[2]) if match else (leaf[2], leaf[1])  # type: ignore[index]
            found[re.sub(r":\d+", "", address), int(times or 1)] += 1
    return found


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_graph_and_text_show_the_same_boxes_at_every_depth(name: str) -> None:
    history, trained = captured(name), captured(name, "train")
    for depth, rolled in product((1, 2, 12, "all"), (False, True)):
        drawing = tl.draw(trained if depth == 2 else history, depth=depth, rolled=rolled, direction="down")
        assert in_text(drawing) == in_graph(drawing), (depth, rolled)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tree_of_modules_and_summary_have_the_repeats_of_the_graph(name: str, mode: str) -> None:
    history = captured(name, mode)
    nodes = describe_pass(list(history.ops)).network.modules
    assert {row.address: row.repeats for row in history.summary() if row.calls} == {n.path: n.repeats for n in nodes}
    lines = str(history.summary()).splitlines()
    assert all(any(f"{n.path} ×{n.repeats} " in line for line in lines) for n in nodes if n.repeats > 1)
    views = walk(tl.draw(history, depth=12).picture.root, 0, 0)
    plans = [view.stack or view.plan for view, *_ in views]
    stacks = [(plan.names[0], len(plan.names)) for plan in plans if plan is not None and plan.sort == "stack"]
    first = [(node.path, node.repeats) for node in nodes if node.repeats > 1]
    assert sorted(times for _, times in stacks) == sorted(times for _, times in first)
    assert all(any(path.endswith(name) and times == n for path, n in first) for name, times in stacks)
    assert sum(node.repeats == 0 for node in nodes) == sum(times - 1 for _, times in first)


def drawn_edges(drawing: Drawing) -> Iterator[tuple[set[tuple[int, int]], set[tuple[int, int]]]]:
    """In each open box, the edges between its members that are drawn, and those that the operations have."""
    items, ops = drawing.picture.scene.items, drawing.history.facts.ops
    for view, _, _, first, *_ in walk(drawing.picture.root, 0, 0):
        if not view.open or view.layout is None:
            continue
        start = first + (view.stack.first[-1] if view.stack else 0)
        member_of: dict[int, int] = {}
        for number, (inner, offset) in enumerate(zip(view.inside, view.first)):
            for item in items[start + offset : start + offset + _size(inner)]:
                member_of.update(dict.fromkeys(item.ops, number))
        bare = {n for n, inner in enumerate(view.inside) if n not in member_of.values()}
        shift = len(view.face.entries)
        drawn = {(r.source - shift, r.target - shift) for r in view.layout.routes}
        inside = range(len(view.inside))
        drawn = {(a, b) for a, b in drawn if a in inside and b in inside and a not in bare}
        pairs = ((edge.parent, op.index) for op in ops for edge in op.parents)
        lifted = {(member_of[a], member_of[b]) for a, b in pairs if a in member_of and b in member_of}
        yield drawn, {(a, b) for a, b in lifted if a != b}


def _size(view: BoxView) -> int:
    plan = view.stack or view.plan
    return plan.size if plan else 1


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_boxes_are_connected_as_the_operations_in_them_are(name: str) -> None:
    history = captured(name)
    for depth in (1, 2, "all"):
        for drawn, expected in drawn_edges(tl.draw(history, depth=depth, direction="down")):
            assert drawn == expected, depth


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_arrow_of_the_studio_is_a_way_in_the_graph(name: str) -> None:
    history = captured(name)
    found = describe_pass(list(history.ops))
    ends = {layer: op.index for layer, op in found.inputs.items()}
    ends |= {layer: source.net.index for layer, source in found.sources.items()}
    ancestors: list[set[int]] = []
    for op in history.ops:
        parents = {edge.parent for edge in op.parents}
        ancestors.append(parents.union(*[ancestors[parent] for parent in parents]))
    for arrow in found.network.projections:
        if arrow.sender in ends and arrow.receiver in ends and arrow.type != "recurrent":
            assert ends[arrow.sender] in ancestors[ends[arrow.receiver]]


# -- what is decided once -------------------------------------------------------------------------------------------


class Blocks(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def block(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def runs(model: nn.Module, x: Tensor) -> list[list[str]]:
    """The names of the boxes that repeat in the model itself, in all views the same."""
    history = tl.log_forward_pass(model, x)
    found = [[box.name for box in run] for run in fold_pass(history.facts).root.runs]
    drawing = tl.draw(history, depth=1)
    assert sorted(n for _, n in in_graph(drawing).elements() if n > 1) == sorted(map(len, found))
    assert in_text(drawing) == in_graph(drawing)
    return found


def test_equal_blocks_in_a_row_repeat() -> None:
    assert runs(Blocks(block(), block(), block()), torch.rand(2, 4)) == [["blocks.0", "blocks.1", "blocks.2"]]


def test_a_block_that_is_frozen_or_shares_weights_begins_another_run() -> None:
    frozen = block().requires_grad_(False)
    assert runs(Blocks(block(), block(), frozen, block()), torch.rand(2, 4)) == [["blocks.0", "blocks.1"]]
    first = block()
    tied = block()
    tied[0].weight = first[0].weight
    assert runs(Blocks(first, block(), block(), tied), torch.rand(2, 4)) == [["blocks.1", "blocks.2"]]


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(nn.functional.adaptive_avg_pool1d(x, 4))


def test_a_block_that_reads_another_shape_is_another_block() -> None:
    """The tree of modules said ×3, and the graph ×2."""
    assert runs(Blocks(Pool(), Pool(), Pool()), torch.rand(2, 3, 8)) == [["blocks.1", "blocks.2"]]


def test_a_module_called_again_and_again_has_calls_and_rolls_into_one() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = block()

        def forward(self, x: Tensor) -> Tensor:
            return self.body(self.body(self.body(x)))

    history = tl.log_forward_pass(Again(), torch.rand(2, 4))
    assert runs(Again(), torch.rand(2, 4)) == []
    (body,) = [node for node in describe_pass(list(history.ops)).network.modules if node.path == "body"]
    assert (body.calls, body.repeats) == (3, 1)
    rolled = tl.draw(history, rolled=True)
    assert ("body", 3) in in_graph(rolled) and in_text(rolled) == in_graph(rolled)


def test_the_counter_of_a_norm_is_part_of_its_box_in_text_too() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).train()
    text = tl.draw(model, torch.rand(2, 1, 5, 5), depth="all").text()
    assert "[1 (BatchNorm2d)]" in text and "add_" not in text


def test_calls_of_the_model_are_branches_of_the_text_as_they_are_boxes_of_the_graph() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.rand(2, 3)
    with tl.recording(model) as history:
        for _ in range(3):
            x = model(x) + 1
    assert [line[3:] for line in tl.draw(history, depth="all").text().splitlines() if "call" in line] == [
        f"call {n} (Sequential)" for n in (1, 2, 3)
    ]


def test_the_only_call_of_a_model_is_a_branch_with_its_type() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    with tl.recording(model) as history:
        model(torch.rand(2, 3)).sum()
    assert "├─ Sequential\n" in tl.draw(history, depth="all").text()


def edges(box: Box[OpLeaf]) -> list[tuple[int, int]]:
    return [(source, target) for source, _, target in box.edges]


def test_an_edge_is_cut_at_the_border_of_every_box_it_runs_through() -> None:
    trace = FakeTrace()
    x = trace.input()
    y = trace.linear("a.fc", x)
    trace.add("sin", y, line=2)
    root = fold_pass(trace.history().facts).root
    assert edges(root) == [(0, 1), (1, 2)] and len(root.members) == 3
    assert all(box.wires == sorted(box.wires, key=lambda wire: wire[0][2:]) for box in (root, *root.boxes()))


def test_boxes_are_alike_wherever_they_stand_and_not_if_anything_differs() -> None:
    history = tl.log_forward_pass(Blocks(block(), block(), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))), torch.rand(2, 4))
    first, second, turned = fold_pass(history.facts).root.boxes()
    assert first.alike == second.alike != turned.alike


def test_the_last_of_equal_blocks_belongs_to_them_also_if_nothing_reads_its_result() -> None:
    model = Blocks(*[nn.Sequential(block(), nn.Linear(4, 4)) for _ in range(3)])
    x = torch.rand(2, 4)
    with tl.recording(model) as history:
        model(x)  # no output is recorded
    drawing = tl.draw(history, depth=1)
    assert in_text(drawing) == in_graph(drawing) == {("blocks.2", 3): 1}  # the graph said ×2, the tree of modules ×3
    assert [node.repeats for node in describe_pass(list(history.ops)).network.modules if node.parent == ""] == [3, 0, 0]

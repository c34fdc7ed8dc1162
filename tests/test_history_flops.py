"""FLOPs, against formulas written out and against torch's own counter."""

from __future__ import annotations

from typing import Any

import pytest
from fake_trace import FakeTrace
from seams import count_flops

from torcheer.records import Edge


def flops(name: str, out: tuple[int, ...], *shapes: tuple[int, ...], settings: Any = (), places: Any = None) -> Any:
    trace = FakeTrace()
    parents = [trace.input(shape=shape) for shape in shapes]
    wheres = places or [(place,) for place in range(len(shapes))]
    edges = tuple(Edge(parent, 0, where) for parent, where in zip(parents, wheres))
    index = trace.add(name, shape=out, parents=edges, settings=settings)
    return count_flops(trace.list[index], trace.list)


@pytest.mark.parametrize(
    ("name", "out", "shapes", "count"),
    [
        ("linear", (4, 5), [(4, 3), (5, 3)], 2 * 4 * 5 * 3),
        ("matmul", (2, 4, 5), [(2, 4, 3), (3, 5)], 2 * 2 * 4 * 5 * 3),
        ("__matmul__", (4, 5), [(4, 3), (3, 5)], 2 * 4 * 5 * 3),
        ("addmm", (4, 5), [(5,), (4, 3), (3, 5)], 2 * 4 * 5 * 3),
        ("baddbmm", (2, 4, 5), [(1,), (2, 4, 3), (2, 3, 5)], 2 * 2 * 4 * 5 * 3),
        ("conv2d", (1, 8, 6, 6), [(1, 4, 8, 8), (8, 2, 3, 3)], 2 * 8 * 36 * 2 * 9),
        ("conv_transpose1d", (1, 6, 9), [(1, 8, 4), (8, 6, 3)], 2 * 8 * 4 * 6 * 3),
        ("scaled_dot_product_attention", (1, 2, 4, 8), [(1, 2, 4, 8), (1, 2, 5, 8), (1, 2, 5, 8)], 2 * 8 * 5 * 16),
        ("lstm_cell", (2, 4), [(2, 3), (2, 4), (16, 3), (16, 4)], 2 * 2 * (48 + 64)),
        ("batch_norm", (2, 3), [(2, 3)], 30),
        ("softmax", (2, 3), [(2, 3)], 24),
        ("relu_", (2, 3), [(2, 3)], 6),
        ("__iadd__", (2, 3), [(2, 3), (2, 3)], 6),
        ("__rsub__", (2, 3), [(2, 3)], 6),
        ("sum", (), [(2, 3)], 6),
        ("adaptive_avg_pool2d", (1, 2, 1, 1), [(1, 2, 4, 4)], 32),
        ("__getitem__", (2,), [(2, 3)], 0),
        ("view", (6,), [(2, 3)], 0),
        ("mystery", (2, 3), [(2, 3)], None),
        ("linear", (4, 5), [], None),
    ],
)
def test_the_formulas(name: str, out: tuple[int, ...], shapes: list[tuple[int, ...]], count: int | None) -> None:
    assert flops(name, out, *shapes) == count


def test_pooling_counts_its_windows() -> None:
    out, x = (1, 2, 4, 4), (1, 2, 8, 8)
    assert flops("max_pool2d", out, x, settings=(((1,), 3),)) == 32 * 9
    assert flops("max_pool2d", out, x, settings=((("kernel_size",), 2),)) == 32 * 4
    assert flops("avg_pool2d", out, x, settings=(((1, 0), 3), ((1, 1), 2))) == 32 * 6
    assert flops("avg_pool2d", out, x) is None


def test_einsum_multiplies_every_index_once() -> None:
    equation = (((0,), "bij,bjk->bik"),)
    assert flops("einsum", (2, 3, 5), (2, 3, 4), (2, 4, 5), settings=equation, places=[(1,), (2,)]) == 2 * 2 * 3 * 4 * 5
    assert flops("einsum", (2, 3), (2, 3), settings=(((0,), "...i->i"),), places=[(1,)]) is None


def test_an_lstm_counts_every_weight_at_every_step() -> None:
    places = [(0,), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]
    shapes = [(5, 2, 3), (1, 2, 4), (1, 2, 4), (16, 3), (16, 4), (16,), (16,)]
    assert flops("lstm", (5, 2, 4), *shapes, places=places) == 2 * 5 * 2 * (48 + 64)


def test_inputs_cost_nothing_and_unseen_work_is_unknown() -> None:
    trace = FakeTrace()
    trace.input()
    trace.add("unseen", kind="unseen")
    assert [count_flops(op, trace.list) for op in trace.list] == [0, None]

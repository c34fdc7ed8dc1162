"""What a column of tensors says, as the server answers it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from seams import MOST_ROWS, AskAnalysis, Column, TableHead, TableRows, analyse_column

from torcheer.errors import BadArgument
from torcheer.studio import Table

CELLS = np.random.default_rng(0).normal(size=(12, 2, 3))
KINDS = ("similarity", "pca", "clusters")


def tables(cells: list[Any], **more: list[Any]) -> dict[str, TableRows]:
    """A table of tensors, and of texts with them."""
    columns = tuple(Column(name, "text") for name in more)
    head = TableHead("patterns", "Patterns", columns=(Column("Act", "tensor", (2, 3)), Column("x"), *columns))
    return {"patterns": TableRows(head, {"Act": cells, "x": [0.5] * len(cells), **more}, len(cells))}


def ask(found: dict[str, TableRows], analysis: str, column: str = "Act") -> dict[str, Any]:
    """The answer to a page."""
    return analyse_column(found, AskAnalysis(0, "patterns", column, analysis))


def test_the_answers_are_those_of_a_table() -> None:
    found, table = tables(CELLS.tolist()), Table({"Act": CELLS})
    np.testing.assert_allclose(ask(found, "similarity")["matrix"], table.similarity("Act"), atol=1e-4)
    scores, _, explained = table.pca("Act")
    answer = ask(found, "pca")
    np.testing.assert_allclose(answer["points"], scores)
    np.testing.assert_allclose(answer["explained"], explained)
    order, merges = table.cluster("Act")
    answer = ask(found, "clusters")
    assert (answer["order"], answer["merges"]) == (order.tolist(), merges)
    assert (answer["labels"][:2], answer["total"]) == (["row 0", "row 1"], 12)


def test_rows_are_called_by_their_text_or_their_place_on_the_x_axis() -> None:
    names = [f"pattern {row}" for row in range(12)]
    assert ask(tables(CELLS.tolist(), Name=names), "pca")["labels"] == names
    found = tables(CELLS.tolist())
    found["patterns"].head = TableHead("patterns", "P", "x", columns=found["patterns"].head.columns)
    assert ask(found, "pca")["labels"] == ["x 0.5"] * 12


@pytest.mark.parametrize("analysis", KINDS)
def test_rows_with_gaps_or_of_another_shape_are_left_out(analysis: str) -> None:
    cells = CELLS.tolist()
    cells[1], cells[2], cells[3], cells[4] = None, [[1.0, None, 2.0]] * 2, [[1.0]], "text"
    answer = ask(tables(cells), analysis)
    assert answer["labels"] == ["row 0", *(f"row {row}" for row in range(5, 12))]
    assert answer["total"] == 12


@pytest.mark.parametrize("analysis", KINDS)
def test_of_many_rows_the_newest_are_compared(analysis: str) -> None:
    cells = np.random.default_rng(0).normal(size=(5000, 2, 3)).tolist()
    answer = ask(tables(cells), analysis)
    assert (len(answer["labels"]), answer["labels"][-1], answer["total"]) == (MOST_ROWS, "row 4999", 5000)


def test_rows_that_are_all_the_same_are_no_error() -> None:
    found = tables([[[1.0] * 3] * 2] * 4)
    assert ask(found, "pca")["explained"] == [0.0, 0.0]
    assert np.isfinite(ask(found, "similarity")["matrix"]).all()
    assert len(ask(found, "clusters")["merges"]) == 3


def test_what_cannot_be_compared_is_said() -> None:
    found = tables(CELLS.tolist())
    for table, column, words in (
        ("pattern", "Act", "no table is called 'pattern' among 1. Did you mean 'patterns'?"),
        ("patterns", "act", "no column of patterns is called 'act' among 2. Did you mean 'Act'?"),
        ("patterns", "x", "x holds no tensors; similarity, axes and clusters are those of tensors"),
    ):
        with pytest.raises(BadArgument) as raised:
            analyse_column(found, AskAnalysis(0, table, column, "pca"))
        assert str(raised.value) == words
    with pytest.raises(BadArgument, match="it takes two rows of finite numbers to compare, and Act has 1"):
        ask(tables([CELLS[0].tolist()]), "pca")

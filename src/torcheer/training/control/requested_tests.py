"""Tests that somebody asks for: their rows in the tables, their values for whoever looks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torcheer.training.control.isolated_tests import Trial, test_all, test_item

if TYPE_CHECKING:
    from torcheer.training.control.session_control import Control


def run_all(control: Control) -> None:
    """A row for each batch, and one for all of them unless it was ended early."""
    where = _where(control)
    control.tables.begin_test()

    def told(trial: Trial) -> None:
        control.tables.trial({"Trial": trial[1], "Name": trial[0], **where, **trial[2]})

    values = test_all(control.session, lambda is_last: _recorded(control, is_last), told, control.has_enough)
    control.tables.end_test()
    if values is not None:
        control.tables.test({**where, "Trial": control.session.place.round, **values})


def run_item(control: Control, item: int) -> None:
    """A row for one item."""
    control.tested = item
    name, _, values = test_item(control.session, item, lambda: _recorded(control, True, item))
    row = {"Trial": item, "Name": f"{name} item {item}", **_where(control), **values}
    control.tables.trial(row)
    control.tables.end_test()


def _recorded(control: Control, is_last: bool, item: int | None = None) -> AbstractContextManager[Any]:
    """Record a pass, where somebody looks; an item that was asked for always."""
    counters = control.counters() | {"Name": "test" if item is None else f"item {item}"}
    return control.looking.testing(counters, is_asked=item is not None, is_last=is_last)


def _where(control: Control) -> dict[str, Any]:
    return {key: value for key, value in control.counters().items() if key in ("Epoch", "Step")}

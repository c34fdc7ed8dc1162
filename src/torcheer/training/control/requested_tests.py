"""Tests that a viewer requests: rows for the tables, layer values for the viewer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torcheer.training.control.isolated_tests import TestedBatch, test_all, test_item

if TYPE_CHECKING:
    from torcheer.training.control.session_control import Control


def run_all(control: Control) -> None:
    """Test everything: add a row for each batch, and one for all of them unless stopped early."""
    where = _where(control)
    with control.tables.test(is_new=True) as log:

        def add_batch(batch: TestedBatch) -> None:
            log.row("test_trial", {"Batch": batch[1], "Name": batch[0], **where, **batch[2]}, where["Step"])

        values = test_all(
            control.session, lambda is_last: _probe_pass(control, is_last), add_batch, control.should_stop_test
        )
    if values is not None:
        control.tables.add_test({**where, "Batch": control.session.place.round, **values})


def run_item(control: Control, item: int) -> None:
    """Test one item and add its row."""
    control.tested = item
    name, _, values = test_item(control.session, item, lambda: _probe_pass(control, True, item))
    row = {"Batch": item, "Name": f"{name} item {item}", **_where(control), **values}
    with control.tables.test(is_new=False) as log:
        log.row("test_trial", row, row["Step"])


def _probe_pass(control: Control, is_last: bool, item: int | None = None) -> AbstractContextManager[Any]:
    """Probe a pass where a viewer is subscribed; always for a requested item."""
    counters = control.counters() | {"Name": "test" if item is None else f"item {item}"}
    return control.probes.probe_test(counters, is_requested=item is not None, is_last=is_last)


def _where(control: Control) -> dict[str, Any]:
    return {key: value for key, value in control.counters().items() if key in ("Epoch", "Step")}

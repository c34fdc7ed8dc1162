"""Torch's own table of operations and sample inputs: every one of them, recorded, is held."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

import torcheer as tl

pytest.importorskip("expecttest", reason="torch's own table asks for it")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_methods_invocations as table

FOREACH = ("unary", "binary", "pointwise", "reduce", "other")
OPERATIONS = [*table.op_db, *(info for kind in FOREACH for info in getattr(table, f"foreach_{kind}_op_db"))]
TYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def test_a_sample_of_some_operations_is_held() -> None:
    reports = list(validated(OPERATIONS[::20], 1))
    assert len(reports) > 25
    assert not [text for text, report in reports if report.failures or report.dead_edges]
    assert sum(bool(report) for _, report in reports) > 0.8 * len(reports)


@pytest.mark.slow
def test_all_samples_of_every_operation_are_held() -> None:
    reports = list(validated(OPERATIONS, 10_000))
    assert len(reports) > 15_000
    assert not [text for text, report in reports if report.failures or report.dead_edges]
    assert sum(bool(report) for _, report in reports) > 0.95 * len(reports)


def validated(operations: list[Any], most: int) -> Iterator[tuple[str, Any]]:
    """A report for each sample, in place and out of place, that torch itself can run."""
    for info in operations:
        kind = next((kind for kind in TYPES if kind in info.supported_dtypes("cpu")), None)
        torch.manual_seed(0)
        make = info.sample_inputs_func  # untracked, hence quicker
        samples = make(info, "cpu", kind, False) if kind is not None else ()
        for number, sample in enumerate(islice(samples, most)):  # making them costs more than all the rest
            for function in (info.op, info.inplace_variant):
                if function is None or not runs(function, sample):
                    continue
                given = copied(sample.input)
                with tl.recording() as history:
                    function(given, *sample.args, **sample.kwargs)
                report = history.validate()
                yield f"{info.name} {info.variant_test_name}, sample {number}: {report}", report


def runs(function: Any, sample: Any) -> bool:
    try:
        function(copied(sample.input), *sample.args, **sample.kwargs)
    except Exception:  # not every sample can be written in place
        return False
    return True


def copied(given: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return given.detach().clone()
    return [copied(item) for item in given] if isinstance(given, list) else copy.copy(given)

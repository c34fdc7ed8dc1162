"""What a watch shows of itself: how far it is, what it found, where its log is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models import small
from torch import nn
from waiting import wait_until
from watch_checks import train

import torcheer as tl
from torcheer.inspector import Transport

RING = Transport(bytes=8 << 20, drain_secs=60.0)


def quiet(text: object) -> None:
    pass


def test_a_repr_says_how_far_it_is_what_was_found_and_where_the_log_is(tmp_path: Path) -> None:
    model = small()
    with tl.watch(model, every=2, to=tmp_path, tell=quiet, on_alert=quiet, transport=RING, rules=["nan_inf"]) as w:
        assert repr(w).startswith("<Watch of Sequential; no step yet, watching; no alerts; no values")
        assert repr(w).endswith(f"; log in {tmp_path}>")
        train(model, 5)
        assert "; step 4, 3 looks, watching; no alerts; " in repr(w)
        w.log(loss=float("nan"))
        assert wait_until(lambda: w.alerts)
        assert "; 1 alert; " in repr(w)
    assert f"; step 4, 3 looks, closed; 1 alert; {w.account.handled:,} values; log in {tmp_path}>" in repr(w)
    assert str(w).splitlines() == [repr(w)[1:-1], f"! {w.alerts[0]}"]


def test_a_watch_without_a_log_says_so() -> None:
    with tl.watch(nn.Linear(2, 2), tell=quiet, transport=RING) as w:
        assert repr(w).endswith("; no log (to=None)>")


def test_problems_are_counted_and_printed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = nn.Linear(2, 2)
    with tl.watch(model, every=1, to=tmp_path / "file", tell=quiet, transport=RING) as w:
        model(torch.ones(1, 2))
    assert f"; {len(w.problems)} problems; " in repr(w) and " not written; " in repr(w)
    assert str(w).splitlines()[1:] == [f"? {problem}" for problem in w.problems]


def test_html_has_nothing_of_a_name_as_markup(tmp_path: Path) -> None:
    folder = tmp_path / "<b>here<b>"
    with tl.watch(nn.Linear(2, 2), every=1, to=folder, tell=quiet, transport=RING) as w:
        page = w._repr_html_()
    assert "&lt;b&gt;here" in page and "<b>" not in page and "Watch of Linear" in page


def test_a_process_that_has_no_part_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    w = tl.watch(nn.Linear(2, 2))
    assert "; another process watches; " in repr(w) and "Watch of Linear" in w._repr_html_()

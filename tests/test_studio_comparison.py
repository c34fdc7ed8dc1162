"""Two checkpoints, files or recorded passes side by side: what is matched, measured, cut and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compared_runs import HOSTILE, run_with_checkpoints, two_files, weights
from safetensors.numpy import save_file
from seams import (
    AskSlice,
    AskStatistics,
    ComparisonSource,
    LazyDifference,
    Window,
    answer_slice,
    answer_statistics,
    choose_checkpoint,
    cut,
    measure,
    open_comparison,
    pair_names,
    tensors_of,
)
from seams import difference_of_arrays as difference
from test_history_difference_hints import leave_unwritten, with_memory
from torch import nn
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument

pytest.importorskip("uvicorn")
from seams import start
from studio_socket import Page


def compared(first: Path | str, second: Path | str) -> ComparisonSource:
    """A comparison that has come to its end."""
    source = open_comparison(first, second)
    wait_until(lambda: source.poll() is not None and source.comparison.done, "the comparison")
    source.poll()
    return source


def results(source: ComparisonSource) -> dict[str, str]:
    columns = source.tables["differences"].columns
    return dict(zip(columns["Layer"], columns["Result"], strict=True))


def cells(source: ComparisonSource, layer: str) -> dict[str, Any]:
    columns = source.tables["differences"].columns
    return {name: column[columns["Layer"].index(layer)] for name, column in columns.items()}


def ended(page: Page) -> dict[str, Any]:
    """What a page is told of a comparison when it has come to its end, be it before the page came."""
    heard = [message for message in page.heard if isinstance(message, dict) and message["kind"] == "comparison_came"]
    return heard[-1] if heard and heard[-1]["done"] else page.until("comparison_came", lambda came: came["done"])


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ComparisonSource]:
    source = compared(*two_files(tmp_path))
    yield source
    source.close()


def test_each_tensor_of_two_files_is_equal_different_or_only_in_one(files: ComparisonSource) -> None:
    assert results(files) == {
        "conv.bias": "differs first", "conv.weight": "equal", "head.weight": "differs",
        "old.weight": "only in the first", "tail.weight": "other shape", f"{HOSTILE}.weight": "only in the second",
    }  # fmt: skip
    assert files.comparison is not None and files.comparison.first_difference == "conv.bias"
    assert cells(files, "tail.weight")["Shape"] == "3×4 → 5×4"


def test_differences_are_those_of_the_numbers_and_nan_is_counted(files: ComparisonSource) -> None:
    a, b = weights()["head.weight"].astype(float), weights(0.5)["head.weight"].astype(float)
    row = cells(files, "head.weight")
    assert row["Max"] == pytest.approx(np.abs(b - a).max()) and row["Mean"] == pytest.approx(0.5, rel=1e-5)
    assert row["Relative"] == pytest.approx(np.abs(b - a).max() / np.abs(a).max())
    assert row["Cosine"] == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
    assert cells(files, "conv.bias")["NaN or ∞"] == 1


def test_a_slice_is_cut_of_both_sides_and_of_their_difference(files: ComparisonSource) -> None:
    heads = {head.variable: head for head in tensors_of(files, "head.weight", -1).tensors}
    assert [heads[name].shape for name in ("First", "Second", "Difference")] == [(4, 32)] * 3
    assert heads["First"].axes == ("axis 1", "axis 2")
    ask = AskSlice(1, "head.weight", "Difference", rows=0, columns=1, index=(0, 0), firsts=(0, 1, 2), counts=(-1, 2, 3))
    numbers = np.frombuffer(answer_slice(files, ask)()[-24:], np.float32).reshape(2, 3)
    assert np.array_equal(numbers, (weights(0.5)["head.weight"] - weights()["head.weight"])[1:3, 2:5])
    statistics = answer_statistics(files, AskStatistics(2, "head.weight", "Difference"))()
    assert dict(statistics.measured)["mean"] == pytest.approx(0.5, rel=1e-5)


def test_what_one_side_lacks_says_so(files: ComparisonSource) -> None:
    whys = {head.variable: head.why for head in tensors_of(files, "old.weight", -1).tensors}
    assert whys == {"First": "", "Second": "it is only in the first", "Difference": "it is only in the first"}
    other = {head.variable: head.why for head in tensors_of(files, "tail.weight", -1).tensors}
    assert other["Difference"] == "the shapes are 3×4 and 5×4" and not other["Second"]


def test_the_network_shows_the_difference_in_3d(files: ComparisonSource) -> None:
    assert files.net is not None and files.net.variables[0].name == "Difference"
    shown = files.units(0, "head.weight", "Difference")
    assert np.array_equal(shown, (weights(0.5)["head.weight"] - weights()["head.weight"]).reshape(-1))


def test_a_large_tensor_is_measured_and_drawn_in_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=(3000, 1000)).astype(np.float32)
    second = first.copy()
    second[2999, 7] += 4
    save_file({"w": first}, tmp_path / "a.safetensors")
    save_file({"w": second}, tmp_path / "b.safetensors")
    source = compared(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert cells(source, "w")["Max"] == pytest.approx(4, rel=1e-6)
    block = cut(LazyDifference(first, second), [Window(-1, 0, 1), Window(0, 0, -1), Window(1, 0, -1)], (0, 0), 1024)  # type: ignore[arg-type]
    assert block.cells.size <= 1024 and block.cells.max() == second[2999, 7] - first[2999, 7]
    assert np.count_nonzero(block.cells) == 1


def test_pieces_measure_the_same_as_the_whole() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 1000))
    b[300:] = a[300:]
    parts = ((a[start : start + 100], b[start : start + 100]) for start in range(0, 1000, 100))
    whole, pieces = difference("x", a, b), measure("x", parts)
    assert (pieces.status, pieces.max_abs) == (whole.status, whole.max_abs)
    assert (pieces.cosine, pieces.mean_abs) == pytest.approx((whole.cosine, whole.mean_abs))


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        (["a.w", "b.w"], ["module.a.w", "module.b.w"], [("a.w", "module.a.w"), ("b.w", "module.b.w")]),
        (["a.w"], ["_orig_mod.a.w"], [("a.w", "_orig_mod.a.w")]),
        (["net.a", "net.b"], ["a", "b"], [("net.a", "a"), ("net.b", "b")]),
        (["a", "c"], ["a", "b", "c"], [("a", "a"), ("", "b"), ("c", "c")]),
        (["a"], ["b"], [("", "b"), ("a", "")]),
    ],
)
def test_names_are_matched_without_wrappers_and_prefixes(
    first: list[str], second: list[str], pairs: list[tuple[str, str]]
) -> None:
    assert list(pair_names(first, second)) == pairs


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_is_its_newest_checkpoint_or_the_one_that_is_named(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path / "a", {10: 0.5, 20: 0.1, 30: 0.3})
    source = compared(f"{run}@10", run)
    assert source.comparison is not None
    assert [Path(name).name for name in (source.comparison.first, source.comparison.second)] == [
        "a step 10",
        "a step 30",
    ]
    assert cells(source, "head.weight")["Max"] == pytest.approx(0.2, rel=1e-4)
    assert compared(f"{run}@best", run / "checkpoints" / "20").comparison.first_difference == ""  # type: ignore[union-attr]


def test_of_equally_good_checkpoints_the_first_is_the_best(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path / "a", {10: 0.5, 20: 0.1, 30: 0.1})
    assert choose_checkpoint(run, "best").step == 20


def test_errors_say_which_checkpoints_there_are(tmp_path: Path) -> None:
    run = run_with_checkpoints(tmp_path / "a", {10: 0.0}, keep_best="")
    with pytest.raises(BadArgument, match=r"no checkpoint '7'; there are latest, best, and those of steps 10"):
        open_comparison(f"{run}@7", run)
    with pytest.raises(BadArgument, match="no best checkpoint: train with keep_best=COLUMN"):
        open_comparison(f"{run}@best", run)
    with pytest.raises(BadArgument, match="there is nothing at"):
        open_comparison(run, tmp_path / "nowhere")


def test_a_page_compares_checkpoints_of_a_folders_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    run_with_checkpoints(tmp_path / "runs" / "a", {10: 0.0, 20: 0.1})
    run_with_checkpoints(tmp_path / "runs" / "b", {10: 0.3})
    with start(tmp_path / "runs", browser=False, quiet=True) as viewer, Page(viewer.url) as page:
        there = page.ask("ask_checkpoints", 1, runs=[0, 1])
        assert [(each["step"], each["best"]) for each in there[0]["checkpoints"]] == [(10, True), (20, False)]
        page.say("open_comparison", first=0, second=1, first_step=20, second_step=-1)
        came = ended(page)
        assert (came["first"], came["second"]) == ("a step 20", "b step 10")
        assert came["first_difference"] == "head.weight"


# -- passes ------------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.tanh(self.one(x)))


def passes(tmp_path: Path) -> tuple[tl.ModelHistory, tl.ModelHistory]:
    torch.manual_seed(0)
    x, first, second = torch.randn(4, 6), Net(), Net()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        second.two.weight[1] += 1
    return tl.log_forward_pass(first, x), tl.log_forward_pass(second, x)


def test_two_passes_are_aligned_and_the_operation_where_they_part_is_marked(tmp_path: Path) -> None:
    for name, history in zip(("a", "b"), passes(tmp_path), strict=True):
        history.save(tmp_path / name, parameters=True)
    source = compared(tmp_path / "a", tmp_path / "b")
    shown = results(source)
    assert shown["one"] == shown["tanh_1_2"] == shown["one.weight"] == "equal"
    assert shown["two"] == "differs first" and shown["two.weight"] == "differs"
    assert source.comparison is not None and "They part at linear_2_3" in source.comparison.summary[0]
    heads = {head.variable: head for head in tensors_of(source, "two", -1).tensors}
    assert heads["Difference"].axes == ("batch", "unit") and not heads["Difference"].why
    assert source.units(0, "two", "Difference", 2) is not None
    assert tensors_of(source, "tanh_1_2", -1).tensors[0].axes == ("batch", "unit")  # no layer, yet of the batch
    assert tensors_of(source, "two.weight", -1).tensors[0].axes == ("output", "input")


def test_uninitialised_memory_is_no_difference_of_two_passes(tmp_path: Path) -> None:
    for name, byte in (("a", 1), ("b", 2)):
        with_memory(leave_unwritten, byte).save(tmp_path / name)
    source = compared(tmp_path / "a", tmp_path / "b")
    assert set(results(source).values()) == {"equal", "equal where it is written"}
    assert source.comparison is not None and not source.comparison.first_difference
    source.close()


def test_a_pass_and_a_file_are_not_compared(tmp_path: Path) -> None:
    first, _ = two_files(tmp_path)
    passes(tmp_path)[0].save(tmp_path / "a")
    with pytest.raises(BadArgument, match="two of a kind are compared"):
        open_comparison(first, tmp_path / "a")


@pytest.mark.parametrize("is_comparison", [True, False])
def test_a_line_of_python_shows_two_histories(tmp_path: Path, is_comparison: bool) -> None:
    first, second = passes(tmp_path)
    shown = (first.compare(second),) if is_comparison else (first, second)
    with tl.show(*shown, browser=False, block=False) as viewer, Page(viewer.url) as page:
        came = ended(page)
        assert (came["first"], came["second"], came["first_difference"]) == ("first", "second", "two")

"""A saved history is the history."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from children import run_python
from seams import SavedTrace
from torch import nn

import torcheer as tl
from torcheer import autograd
from torcheer.archive import Archive
from torcheer.errors import ArchiveDamaged, BadArgument, CannotReplay, NotAnArchive, ValueUnavailable


class Net(nn.Module):
    """Branches, a loop, slices, a dtype among the arguments, a parameter used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.conv(x))[:, :, ::2, 1:].mean((2, 3))
        for _ in range(2):
            h = self.fc(h) + h.to(torch.float64).float()
        return h.clamp(max=float("inf"))


@pytest.fixture
def history() -> tl.ModelHistory:
    torch.manual_seed(0)
    history = tl.log_forward_pass(Net(), torch.rand(2, 3, 6, 6), save_gradients=True)
    history.backward()
    return history


def test_it_prints_draws_and_compares_like_the_fresh_one(history: tl.ModelHistory, tmp_path: Path) -> None:
    again = tl.load(history.save(tmp_path / "net"))
    assert str(again) == str(history)
    assert [str(again[n]) for n in range(len(again))] == [str(history[n]) for n in range(len(history))]
    assert again.draw().svg() == history.draw().svg()
    assert again.to_pandas().astype(str).equals(history.to_pandas().astype(str))
    assert "First difference: none" in str(history.compare(again))


def test_values_and_gradients_are_bit_equal(history: tl.ModelHistory, tmp_path: Path) -> None:
    again = tl.load(history.save(tmp_path / "net"))
    for label in history.layer_labels:
        for one, two in zip(again[label].passes, history[label].passes) if hasattr(history[label], "passes") else ():
            assert torch.equal(one.tensor_contents, two.tensor_contents)
    assert torch.equal(again["relu_1"].tensor_contents, history["relu_1"].tensor_contents)
    assert torch.equal(again["relu_1"].grad_contents, history["relu_1"].grad_contents)
    assert isinstance(again["relu_1"].tensor_contents, torch.Tensor)


def test_a_backward_call_that_did_not_reach_a_value_leaves_a_gap(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.sin(), x.cos()

    history = tl.log_forward_pass(Two(), torch.rand(3, requires_grad=True), save_gradients=True)
    for label in ("cos_1", "sin_1", "cos_1"):
        history.backward(history[label].tensor_contents.sum(), retain_graph=True)
    again = tl.load(history.save(tmp_path / "net"))
    for label in ("cos_1", "sin_1"):
        one, two = again[label].gradients, history[label].gradients
        assert [g is None for g in one] == [g is None for g in two] and len(one) == 3
        assert all(torch.equal(g, w) for g, w in zip(one, two) if w is not None)


def test_a_backward_pass_is_saved_with_its_rules(tmp_path: Path) -> None:
    with autograd.record():
        history = autograd.explain(Net()(torch.rand(2, 3, 6, 6)).square().mean()).history
    again = tl.load(history.save(tmp_path / "loss"))
    assert again.ops == history.ops and again.draw().svg() == history.draw().svg() and again.draw().text()
    assert torch.equal(again["relu_1"].grad_contents, history["relu_1"].grad_contents)
    archive = Archive(tmp_path / "loss")
    change(archive.frames[0]["about"], ["records", "BackwardStep", 0, 2], [99])
    with pytest.raises(ArchiveDamaged, match="cannot read operations"):
        SavedTrace(archive)


def test_operations_below_are_kept(tmp_path: Path) -> None:
    history = tl.log_forward_pass(Net(), torch.rand(2, 3, 6, 6), level="aten")
    again = tl.load(history.save(tmp_path / "net"))
    assert any(op.below for op in history)
    assert [op.below for op in again] == [op.below for op in history]


def test_parameters_and_buffers_are_kept_when_asked_for(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    history = tl.log_forward_pass(model, torch.rand(2, 3, 6, 6))
    again = tl.load(history.save(tmp_path / "with", parameters=True))
    names = list(history.trace.info().stored)
    assert "0.weight" in names and "1.running_mean" in names
    for name in names:
        assert torch.equal(again.trace.stored_value(name), history.trace.stored_value(name))
    assert (again.trace.stored_value("1.running_mean") == 0).all() and model[1].running_mean.abs().sum() > 0
    without = tl.load(history.save(tmp_path / "without"))
    with pytest.raises(ValueUnavailable, match="parameters=True"):
        without.trace.stored_value("0.weight")


def test_a_value_that_cannot_be_kept_is_left_out_and_says_so(tmp_path: Path) -> None:
    class Small(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            packed = torch.empty(2, 2, dtype=torch.uint8).view(torch.bits8)
            return x + packed.view(torch.uint8).shape[0]

    with pytest.warns(RuntimeWarning, match="1 value left out when it was saved. value 0 of view"):
        path = tl.log_forward_pass(Small(), torch.eye(3)).save(tmp_path / "net")
    again = tl.load(path)
    assert torch.equal(again["add_1"].tensor_contents, torch.eye(3) + 2)
    with pytest.raises(ValueUnavailable, match="bits8"):
        _ = again["view_1"].tensor_contents


def test_settings_keep_their_types(tmp_path: Path) -> None:
    class Settings(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for number in (1, 1.0, True, 0.0, -0.0, float("nan"), 1e300, 2**60):
                x = x.mul(number)
            return x[..., None, 1:2].to(torch.float16)

    history = tl.log_forward_pass(Settings(), torch.rand(3, 3))
    again = tl.load(history.save(tmp_path / "net"))
    assert [repr(op.settings) for op in again] == [repr(op.settings) for op in history]


def test_a_loaded_history_is_saved_as_the_same(history: tl.ModelHistory, tmp_path: Path) -> None:
    once = tl.load(history.save(tmp_path / "a", parameters=True))
    twice = tl.load(once.save(tmp_path / "b", parameters=True))
    for one, other in ((once, history), (twice, once)):
        assert [str(one[n]) for n in range(len(one))] == [str(other[n]) for n in range(len(other))]
        assert one.trace.info() == other.trace.info()
    assert (tmp_path / "a" / "000000.data").read_bytes() == (tmp_path / "b" / "000000.data").read_bytes()


def test_a_loaded_tensor_shares_the_files_memory_and_writing_to_it_stays_private(tmp_path: Path) -> None:
    path = tl.log_forward_pass(nn.Linear(300, 300), torch.rand(300, 300)).save(tmp_path / "net")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    again = tl.load(path)
    found = again["linear_1"].tensor_contents
    assert found is again["linear_1"].tensor_contents
    expected = found.clone()
    found.mul_(0)
    assert torch.equal(again["linear_1"].tensor_contents, expected) and not found.any()
    again["linear_1"].tensor_contents.add_(7)
    assert torch.equal(again["linear_1"].tensor_contents, expected)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    assert torch.equal(tl.load(path)["linear_1"].tensor_contents, expected)


def test_loading_values_warns_of_nothing_also_under_inference_mode(tmp_path: Path, recwarn: object) -> None:
    history = tl.log_forward_pass(Net(), torch.rand(2, 3, 6, 6))
    with torch.inference_mode():
        again = tl.load(history.save(tmp_path / "net"))
        for _ in range(2):
            assert torch.equal(again["relu_1"].tensor_contents, history["relu_1"].tensor_contents)
    assert not list(recwarn)  # type: ignore[call-overload]


def test_a_history_outlives_the_one_that_is_saved_over_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    one, two = (tl.log_forward_pass(nn.Linear(4, 4), torch.rand(2, 4)) for _ in range(2))
    loaded = tl.load(one.save(tmp_path / "net"))
    two.save(tmp_path / "net", overwrite=True)
    assert torch.equal(loaded["linear_1"].tensor_contents, one["linear_1"].tensor_contents)
    assert torch.equal(tl.load(tmp_path / "net")["linear_1"].tensor_contents, two["linear_1"].tensor_contents)
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


def test_reading_an_archive_as_a_history_leaves_it_as_it_was(history: tl.ModelHistory, tmp_path: Path) -> None:
    archive = Archive(history.save(tmp_path / "net"))
    before = json.dumps(archive.frames[0]["about"])
    one, two = SavedTrace(archive), SavedTrace(archive)
    assert one.ops() == two.ops() and json.dumps(archive.frames[0]["about"]) == before


def change(about: Any, way: list[Any], value: Any) -> None:
    for part in way[:-1]:
        about = about[part]
    about[way[-1]] = value


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (["ops", "index"], []),
        (["ops", "index", 3], "3"),
        (["ops", "index", 3], None),
        (["ops", "index", 3], 3.0),
        (["ops", "name", "at", 3], 99),
        (["ops", "name", "at", 3], -1),
        (["ops", "name", "at", 3], "x"),
        (["ops", "name", "of", 0], 7),
        (["ops", "kind", "at"], 10**12),
        (["ops", "level", "at"], 10**12),
        (["ops", "level", "at"], -1),
        (["ops", "parents", "of"], [[[0, 0, [0]]]]),
        (["ops", "parents", "of"], [[[99, 0, [0]]]]),
        (["ops", "parents", "of"], [[[1, -1, [0]]]]),
        (["ops", "parents", "of"], [["x"]]),
        (["ops", "site", "of", 0], {"$": "tuple", "v": [["f", 1]]}),
        (["ops", "parents", "of"], [[[1.0, 0, [0]]]]),
        (["ops", "settings", "of"], [{"$": "os.system", "v": "true"}]),
        (["ops", "settings", "of"], [{"$": "tuple"}]),
        (["ops", "settings", "of"], [{"v": []}]),
        (["ops", "evil"], []),
        (["records", "TensorMeta", 0], [[1], "torch.float32", "cpu"]),
        (["records", "TensorMeta", 0, 1], 7),
        (["records", "TensorMeta", 0, 0], [[1], 2]),
        (["records", "TensorMeta", 0, 0], [10**400]),
        (["records", "TensorMeta", 0, 3], 10**308),
        (["records", "Stored", 0, 2], [2, "3"]),
        (["records", "Stored", 0, 2], [None]),
        (["records", "Stored", 0, 6], [[0]]),
        (["records", "ModuleInfo", 0, 2], [1]),
        (["records", "Source", 0], "abc"),
        (["info", "modules"], [99]),
        (["info", "evil"], 1),
        (["info", "model"], {"$": "dict", "v": 3}),
        (["info"], None),
        (["below"], None),
        (["left_out"], []),
    ],
)
def test_records_that_cannot_be_are_damage(
    way: list[Any], value: Any, history: tl.ModelHistory, tmp_path: Path
) -> None:
    archive = Archive(history.save(tmp_path / "net"))
    change(archive.frames[0]["about"], way, value)
    with pytest.raises(ArchiveDamaged):
        SavedTrace(archive)
    del archive.frames[0]["about"][way[0]]
    with pytest.raises(ArchiveDamaged):
        SavedTrace(archive)


def test_a_save_that_fails_leaves_what_was_there(history: tl.ModelHistory, tmp_path: Path) -> None:
    history.save(tmp_path / "net")
    with pytest.raises(BadArgument, match="codec"):
        history.save(tmp_path / "net", overwrite=True, codec=lambda sample: "none of ours")
    assert [file.name for file in tmp_path.iterdir()] == ["net"]
    assert str(tl.load(tmp_path / "net")) == str(history)


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_saves_at_once_do_not_mix(history: tl.ModelHistory, tmp_path: Path, overwrite: bool) -> None:
    def save_meanwhile(sample: Any) -> str:
        if not (tmp_path / "net").exists():
            history.save(tmp_path / "net")
        return "raw"

    with nullcontext() if overwrite else pytest.raises(BadArgument, match="there already"):
        history.save(tmp_path / "net", overwrite=overwrite, codec=save_meanwhile)
    assert str(tl.load(tmp_path / "net")) == str(history)
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


def test_it_is_read_without_torch(history: tl.ModelHistory, tmp_path: Path) -> None:
    path = history.save(tmp_path / "net")
    code = f"""
import sys, torcheer as tl
history = tl.load({str(path)!r})
print(history["relu_1"].tensor_contents.shape, len(history.draw().svg()) > 1000, "torch" in sys.modules)
"""
    done = run_python("-c", code)
    assert done.stdout == "(2, 4, 6, 6) True False\n", done.stderr


def test_replay_is_told_to_need_the_model(history: tl.ModelHistory, tmp_path: Path) -> None:
    with pytest.raises(CannotReplay, match="live model"):
        tl.load(history.save(tmp_path / "net")).validate()


def test_values_that_were_not_saved_say_so(tmp_path: Path) -> None:
    again = tl.load(
        tl.log_forward_pass(Net(), torch.rand(1, 3, 6, 6), layers_to_save=["relu_1"]).save(tmp_path / "net")
    )
    assert again["relu_1"].tensor_contents.shape == (1, 4, 6, 6)
    with pytest.raises(ValueUnavailable):
        _ = again["conv2d_1"].tensor_contents


def test_nothing_is_overwritten_unasked(history: tl.ModelHistory, tmp_path: Path) -> None:
    history.save(tmp_path / "net")
    with pytest.raises(BadArgument, match="overwrite=True"):
        history.save(tmp_path / "net")
    history.save(tmp_path / "net", overwrite=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadArgument, match="no archive of ours"):
        history.save(tmp_path / "other", overwrite=True)


def test_a_file_names_nothing_that_is_imported(history: tl.ModelHistory, tmp_path: Path) -> None:
    from seams import encode_frame, index_header, seals

    path = history.save(tmp_path / "net")
    evil = {"step": 0, "entries": [], "about": {"info": {"$": "os.system", "v": ["echo evil"]}, "ops": []}}
    body, check = encode_frame(evil, 0)
    seal = {"seal": {"frames": 1, "bytes": (path / "000000.data").stat().st_size, "more": False}}
    (path / "000000.index").write_bytes(index_header(0) + body + encode_frame(seal, check)[0])
    seals.write_pending_copy(path, 0, encode_frame(seal, check)[1], sync=False)
    seals.publish_copy(path, 0)
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        tl.load(path)


def test_another_kind_of_archive_is_no_history_and_opens_as_an_archive(tmp_path: Path) -> None:
    from torcheer.archive import Archive, Writer, load

    Writer(tmp_path / "a").close()
    assert json.loads((tmp_path / "a" / "archive.json").read_text())["format"] == "torcheer archive"
    with pytest.raises(NotAnArchive, match="not of a history"):
        load(tmp_path / "a")
    assert isinstance(tl.load(tmp_path / "a"), Archive)

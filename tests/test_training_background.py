"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import (
    LEAST_PINNED,
    CheckpointSaved,
    CheckpointStore,
    HostCopies,
    Packed,
    StepDone,
    Stopped,
    checkpoint_files,
    newest_complete,
)
from seams import read_checkpoint_folder as read_checkpoint
from training_cases import results, run, session
from waiting import WAIT_SECS

from torcheer.errors import CannotWrite

pytestmark = pytest.mark.usefixtures("one_thread")
write_manifest = checkpoint_files.write_manifest


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, trained = threading.Event(), 0

    def write_late(folder: Path, contents: Any) -> None:
        assert contents["place"]["step"] != 3 or go_on.wait(WAIT_SECS), "training waits for it"
        write_manifest(folder, contents)

    monkeypatch.setattr(checkpoint_files, "write_manifest", write_late)
    saved: list[int] = []
    for event in session("plain", tmp_path, keep_last=100).run():
        if isinstance(event, StepDone):
            trained = event.step
            if trained == 5:
                assert not (tmp_path / "checkpoints" / "3").exists() and saved == [0]
                go_on.set()
        if isinstance(event, CheckpointSaved):
            saved.append(event.step)
            assert read_checkpoint(event.path)["place"]["step"] == event.step
    assert saved == sorted(saved) and saved[-1] == trained and 3 in saved


def test_a_checkpoint_holds_what_was_there_when_it_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("plain", tmp_path / "in time", keep_last=100)
    waiting = threading.Event()

    def write_last(folder: Path, contents: Any) -> None:
        if contents["place"]["step"] == 3:
            assert waiting.wait(WAIT_SECS)
        write_manifest(folder, contents)

    monkeypatch.setattr(checkpoint_files, "write_manifest", write_last)
    for event in session("plain", tmp_path / "late", keep_last=100).run():
        if isinstance(event, StepDone) and event.step == 5:
            waiting.set()
    for name in ("model.safetensors", "optim.safetensors", "state.json", "MANIFEST.json"):
        file = Path("checkpoints", "3", name)
        assert (tmp_path / "late" / file).read_bytes() == (tmp_path / "in time" / file).read_bytes()
    assert results(tmp_path / "late") == results(tmp_path / "in time")


def test_a_stop_that_is_asked_for_while_a_checkpoint_begins_waits_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, waiting = session("plain", tmp_path, keep_last=100), threading.Event()
    assert one.checkpoints is not None
    save = one.checkpoints.save

    def save_and_be_asked(*args: Any, **kwargs: Any) -> Path | None:
        path = save(*args, **kwargs)
        if one.place.step == 3:
            one.stop_reason = "SIGINT was received"  # as a signal's handler does, at any moment
        return path

    def write_late(folder: Path, contents: Any) -> None:
        assert contents["place"]["step"] != 3 or waiting.wait(WAIT_SECS)
        write_manifest(folder, contents)

    monkeypatch.setattr(one.checkpoints, "save", save_and_be_asked)
    monkeypatch.setattr(checkpoint_files, "write_manifest", write_late)
    for event in one.run():
        if isinstance(event, Stopped):
            newest = newest_complete(one.checkpoints.folder)
            assert newest is not None and int(newest.name) == one.place.step
        if isinstance(event, Stopped) or (isinstance(event, StepDone) and event.step == 4):
            waiting.set()
    assert one.stop_reason


def test_a_write_that_fails_is_raised_and_what_was_trained_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, contents: Any) -> None:
        if contents["place"]["step"] == 3:
            raise OSError(28, "No space left on device")
        write_manifest(folder, contents)

    monkeypatch.setattr(checkpoint_files, "write_manifest", refuse)
    one = session("plain", tmp_path)
    with pytest.raises(CannotWrite, match="No space left on device"):
        for _ in one.run():
            pass
    state, path, problems = CheckpointStore(tmp_path).newest()
    assert state is not None and path is not None and not problems and not list(path.parent.glob(".tmp-*"))
    for _ in one.run():
        pass
    monkeypatch.undo()
    run("plain", tmp_path / "whole")
    assert results(tmp_path)["metrics/0.csv"] == results(tmp_path / "whole")["metrics/0.csv"]


def test_the_copies_of_a_checkpoint_use_their_memory_again() -> None:
    live, copies = torch.arange(4.0), HostCopies()
    packed = packed_of({"w": live})
    first = copies.of(packed).tensors["models"]["w"]
    live += 1
    assert first.tolist() == [0, 1, 2, 3]
    second = copies.of(packed).tensors["models"]["w"]
    assert second.tolist() == [1, 2, 3, 4] and second.data_ptr() == first.data_ptr()


def packed_of(tensors: dict[str, torch.Tensor]) -> Packed:
    return Packed({"models": tensors}, {}, {}, {}, {})


def test_the_copies_are_equal_to_tensors_of_any_kind_and_follow_their_sizes() -> None:
    tensors = {
        "number": torch.tensor(3.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False, True]),
        "half": torch.randn(7).bfloat16(),
        "complex": torch.randn(3, 2, dtype=torch.complex64),
        "turned": torch.arange(6).view(2, 3).t(),
        "byte": torch.tensor([7], dtype=torch.uint8),
    }
    copies = HostCopies()
    for grown in (1, 2, 5, 3):
        tensors["growing"] = torch.randn(grown, 4)
        copied = copies.of(packed_of(tensors)).tensors["models"]
        assert copied.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert copied[name].dtype == tensor.dtype and torch.equal(copied[name], tensor)
            assert copied[name].is_contiguous()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_copies_of_a_gpus_tensors_are_pinned_and_unpinned_when_sizes_change() -> None:
    copies, size = HostCopies(), LEAST_PINNED
    small = torch.tensor(1.0, device="cuda")
    for numel in (size, size, 2 * size):
        live = torch.rand(numel, device="cuda")
        copied = copies.of(packed_of({"large": live, "small": small})).tensors["models"]
        assert copied["large"].is_pinned() and torch.equal(copied["large"], live.cpu()) and copied["small"] == 1
        addresses = list(copies._pinned)
    assert len(addresses) <= 2  # one for both, and, since the sizes changed, one more for the larger
    del copies, copied
    other = torch.empty(1)
    assert not other.is_pinned() and torch.ones(3, device="cuda").sum() == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_memory_that_cuda_refuses_to_pin_is_copied_into_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = torch.cuda.cudart()

    class Refusing:
        def cudaHostRegister(self, address: int, size: int, flags: int) -> object:
            return runtime.cudaHostRegister(0, size, flags)  # CUDA's own refusal, with what it leaves behind

    monkeypatch.setattr(torch.cuda, "cudart", Refusing)
    live = torch.rand(LEAST_PINNED, device="cuda")
    copied = HostCopies().of(packed_of({"w": live})).tensors["models"]["w"]
    assert not copied.is_pinned() and torch.equal(copied, live.cpu())
    assert torch.ones(3, device="cuda").sum() == 3  # the refusal does not come back in a training step

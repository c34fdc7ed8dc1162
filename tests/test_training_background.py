"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import results, run, session
from waiting import WAIT_SECS

from torcheer.errors import CannotWrite
from torcheer.training.checkpoints import checkpoint_files
from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore, read_checkpoint
from torcheer.training.checkpoints.saved_steps import newest_complete
from torcheer.training.loop.events import CheckpointSaved, StepDone, Stopped

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
    from torcheer.training.checkpoints.background_write import HostCopies
    from torcheer.training.checkpoints.checkpoint_files import Packed

    live, copies = torch.arange(4.0), HostCopies()
    packed = Packed({"models": {"w": live}}, {}, {}, {}, {})
    first = copies.of(packed).tensors["models"]["w"]
    live += 1
    assert first.tolist() == [0, 1, 2, 3]
    second = copies.of(packed).tensors["models"]["w"]
    assert second.tolist() == [1, 2, 3, 4] and second.data_ptr() == first.data_ptr()

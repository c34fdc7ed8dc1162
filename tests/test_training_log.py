"""A session's log: every row in it once, and CSV files that are made from it again."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from seams import CHANGE_COLUMNS as COLUMNS
from seams import Alert, EpochDone, RunLog, StepDone, TrainingLog, WriterLog, log_folder, replace_csv, step_losses
from training_cases import results, run, session

from torcheer.errors import ArchiveDamaged
from torcheer.studio import logs

PLACE = {"stage": 0, "epoch": 0, "round": 0, "step": 0, "ended": []}


def steps(log: TrainingLog, *numbers: int) -> None:
    for step in numbers:
        log.add_steps([StepDone(step, 1, step, "a, b", torch.tensor(step / 4))])
    log.flush_steps()


def csv_files(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (run / "metrics").iterdir()}


def until(directory: Path, epoch: int, **options: Any) -> None:
    """Train until an epoch is over and leave, as a process that ends does."""
    for event in session("plain", directory, **options).run():
        if type(event) is EpochDone and event.epoch == epoch:
            return


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing has disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    run("plain", path)
    return path


def test_every_nth_step_is_written_once_and_cut_back(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, steps_csv=2)
    log.begin(PLACE, [[]])
    steps(log, 1, 2, 2, 2, 3, 4, 5, 6)
    log.close()
    lines = [b"step,epoch,pipeline,loss", b'2,1,"a, b",0.5', b'4,1,"a, b",1.0', b'6,1,"a, b",1.5', b""]
    assert (tmp_path / "metrics" / "steps.csv").read_bytes() == b"\r\n".join(lines)
    with (tmp_path / "metrics" / "steps.csv").open("ab") as file:
        file.write(b"8,1,a")  # killed while it wrote
    later = TrainingLog(tmp_path, steps_csv=2)
    later.begin(PLACE | {"step": 4}, [[]])
    assert [row[0] for row in step_losses(later.tables())] == [2, 4]
    steps(later, 4, 6)  # the rest of what was gathered for step 4
    later.close()
    assert (tmp_path / "metrics" / "steps.csv").read_bytes() == b"\r\n".join(lines)
    assert [row[0] for row in step_losses(later.tables())] == [2, 4, 6]


def test_a_page_sees_steps_between_those_of_the_csv_file(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, steps_csv=10)
    log.begin(PLACE, [[]])
    for step in range(1, 25):
        done = StepDone(step, 1, step, "a", torch.tensor(step / 4))
        log.add_steps([done])
        if step % 4 == 0:
            log.show_steps([done])
    log.flush_steps()
    log.close()
    rows = RunLog(tmp_path).tables()["train_step"].columns
    assert dict(zip(rows["Step"], rows["loss"])) == {step: step / 4 for step in (4, 8, 10, 12, 16, 20, 24)}
    lines = (tmp_path / "metrics" / "steps.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["10", "20"], "the file has every tenth"


@pytest.mark.parametrize("harm", ["deleted", "cut", "edited", "all gone"])
def test_a_csv_that_was_changed_by_hand_is_made_again_from_the_log(tmp_path: Path, whole: Path, harm: str) -> None:
    until(tmp_path, 2)
    for file in (tmp_path / "metrics").iterdir():
        if harm in ("deleted", "all gone"):
            file.unlink()
        else:
            text = file.read_bytes()
            file.write_bytes(text[:-9] if harm == "cut" else text.replace(b"0.", b"7."))
    if harm == "all gone":
        (tmp_path / "metrics").rmdir()
    run("plain", tmp_path)
    assert csv_files(tmp_path) == csv_files(whole) and results(tmp_path) == results(whole)


def test_a_checkpoint_has_no_row_of_an_epoch_and_the_log_has_each_once(tmp_path: Path) -> None:
    run("plain", tmp_path)
    rows = (tmp_path / "metrics" / "0.csv").read_text().splitlines()
    value = rows[-2].split(",")[rows[0].split(",").index("val loss")]
    files = {}
    for file in tmp_path.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        if count := data.count(value.encode()) + data.count(struct.pack("<d", float(value))):
            files[file.relative_to(tmp_path).as_posix()] = count
    assert files.pop("log/train/000000.data") == 1 and files.pop("metrics/0.csv") == 1
    assert all(name.endswith("MANIFEST.json") for name in files)  # what the weights of that step are worth


def test_rows_that_the_log_has_lost_are_taken_from_the_csv(tmp_path: Path, whole: Path) -> None:
    until(tmp_path, 2)
    shutil.rmtree(tmp_path / "log")
    run("plain", tmp_path)
    assert csv_files(tmp_path)["0.csv"] == csv_files(whole)["0.csv"]
    assert len(logs(tmp_path)["train_epoch"]) == len(logs(whole)["train_epoch"])


def test_a_run_whose_rows_are_lost_everywhere_is_refused_and_its_weights_still_load(tmp_path: Path) -> None:
    run("plain", tmp_path)
    shutil.rmtree(tmp_path / "log")
    shutil.rmtree(tmp_path / "metrics")
    again = session("plain", tmp_path)
    with pytest.raises(ArchiveDamaged, match=r"log/train has not the rows of its 4 epochs, nor have the CSV files"):
        again.resume()
    state, _, _ = again.checkpoints.newest(with_rows=False)
    again.restore_weights(state)


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_older_one_with_each_row_once(
    tmp_path: Path, whole: Path
) -> None:
    run("plain", tmp_path)
    newest = max((tmp_path / "checkpoints").iterdir(), key=lambda path: int(path.name))
    (newest / "model.safetensors").write_bytes(b"")
    run("plain", tmp_path)
    assert results(tmp_path) == results(whole)
    for name in ("train_epoch", "train_step", "test_epoch"):
        assert logs(tmp_path)[name] == logs(whole)[name], name
    (alert,) = RunLog(tmp_path).alerts
    assert alert.rule == "session" and "cannot be used" in alert.what


@pytest.mark.parametrize("left", [0.0, 0.02, 0.6, 0.999])
def test_a_run_whose_sealed_log_is_cut_goes_on_to_the_same_end_and_says_so_once(
    tmp_path: Path, whole: Path, left: float
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    cut(tmp_path / "run" / "log" / "train" / "000000.index", left)
    newest = max((tmp_path / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    cut(newest / "model.safetensors", 0.5)  # so that there is something left to train
    said = [event.message for event in session("plain", tmp_path / "run").run() if type(event) is Alert]
    assert "model.safetensors has" in said[0] and "the log is damaged: " in said[1] and "goes on in" in said[1]
    assert len(said) == 2 and results(tmp_path / "run") == results(whole)
    ours, theirs = logs(tmp_path / "run"), logs(whole)
    columns = {"train_epoch": ["Epoch", "loss", "val loss"], "test_epoch": ["Epoch", "val loss"],
               "train_step": ["Step", "Epoch", "loss"]}  # fmt: skip
    for name, names in columns.items():
        assert all(list(ours[name][column]) == list(theirs[name][column]) for column in names), name
    assert not [event for event in session("plain", tmp_path / "run").run() if type(event) is Alert]


def test_a_change_by_hand_that_a_cut_log_has_lost_is_taken_from_its_file(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path)
    log.begin(PLACE, [[]])
    log.replace("changes", [(3, {"Epoch": 1, "name": "lr", "before": 0.1, "after": 0.2})])
    replace_csv(tmp_path / "metrics" / "changes.csv", COLUMNS, [[3, 1, "lr", 0.1, 0.2]])
    log.close()
    before = TrainingLog(tmp_path).tables()["changes"]
    cut(tmp_path / "log" / "train" / "000000.index", 0.3)
    assert [row.cells for row in TrainingLog(tmp_path).tables()["changes"]] == [row.cells for row in before]
    again = TrainingLog(tmp_path)
    again.begin(PLACE | {"step": 4}, [[]])
    again.close()
    assert [row.cells for row in logs_of(tmp_path)["changes"]] == [row.cells for row in before]


def cut(path: Path, left: float) -> None:
    """Leave so much of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(left * len(data))])


def logs_of(directory: Path) -> Any:
    """What the log itself has, without what the files have."""
    return WriterLog(log_folder(directory, "train")).tables


def test_a_log_that_is_removed_while_it_trains_is_written_again(tmp_path: Path, whole: Path) -> None:
    for event in session("plain", tmp_path).run():
        if type(event) is EpochDone and event.epoch == 2:
            shutil.rmtree(log_folder(tmp_path, "train"))
    assert logs(tmp_path)["train_epoch"] == logs(whole)["train_epoch"]


def test_the_evaluation_of_an_epoch_is_a_test_and_stored_with_its_row(whole: Path) -> None:
    tests, epochs = logs(whole)["test_epoch"], logs(whole)["train_epoch"]
    assert list(tests["Epoch"]) == list(epochs["Epoch"]) and list(tests["val loss"]) == list(epochs["val loss"])
    assert "Step" in tests and "Step" not in epochs

"""Rows about the machine of a run: from the real /proc, and from a real process in place of nvidia-smi."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child
from seams import LiveSource, MachineReader, RunLog, SystemRows
from torch import nn
from torch.utils.data import TensorDataset
from waiting import wait_until

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.studio import Table, logs
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage

CPU = {"process CPU %", "process RAM GB", "CPU %", "RAM GB"}
SMI = """#!/bin/sh
echo "$@" >> {folder}/asked
printf '0, 37, 12345, 310.52, 54\\n1, [N/A], 2, [Not Supported], 41\\n'
"""


def rows_of(run: Path) -> int:
    tables = RunLog(run).tables()
    return tables["system"].count if "system" in tables else 0


def system(run: Path) -> Table:
    return logs(run)["system"]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called nvidia-smi that answers for two GPUs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    _program(folder / "nvidia-smi", SMI.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


# -- readings


def test_a_busy_process_uses_a_core_and_an_idle_one_nothing() -> None:
    with (
        Child("-c", "import time\nprint(1, flush=True)\nwhile True: pass") as busy,
        Child("-c", "import time\nprint(1, flush=True)\ntime.sleep(60)") as idle,
    ):
        busy.line(), idle.line()
        readers = [MachineReader(child.pid) for child in (busy, idle)]
        time.sleep(0.3)
        first, second = (reader.read() for reader in readers)
    assert first["process CPU %"] > 2 > second["process CPU %"]  # among many, a core is not all its own
    assert 0 < first["CPU %"] <= 100


def test_memory_is_that_of_the_process() -> None:
    code = "import sys\nblock = bytearray(int(sys.argv[1]))\nprint(1, flush=True)\nsys.stdin.read()"
    with Child("-c", code, 300_000_000, stdin=-1) as large, Child("-c", code, 1, stdin=-1) as small:
        large.line(), small.line()
        more, less = (MachineReader(child.pid).read()["process RAM GB"] for child in (large, small))
    assert 0.29 < more - less < 0.31
    assert MachineReader(os.getpid()).read()["RAM GB"] > more


def test_a_process_that_is_gone_leaves_the_numbers_of_the_machine() -> None:
    with Child("-c", "print(1, flush=True)\ninput()", stdin=-1) as child:
        child.line()
        reader = MachineReader(child.pid)
    assert "RAM GB" in reader.read() and "process RAM GB" not in reader.read()


def test_a_system_without_proc_has_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nor with the driver's program
    assert MachineReader(1, tmp_path).read() == {}


def test_gpus_are_asked_of_nvidia_smi_and_what_they_do_not_tell_is_left_out(smi: Path) -> None:
    cells = MachineReader(os.getpid()).read()
    assert cells["GPU 0 %"] == 37 and cells["GPU 0 memory GB"] == 12.945 and cells["GPU 0 power W"] == 310.52
    assert cells["GPU 0 °C"] == 54 and cells["GPU 1 °C"] == 41
    assert "GPU 1 %" not in cells and "GPU 1 power W" not in cells


@pytest.mark.parametrize(("visible", "asked"), [("1,GPU-5", "--id=1,GPU-5"), ("", None), ("-1", None)])
def test_only_gpus_that_the_run_may_use_are_asked(
    smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str, asked: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    MachineReader(os.getpid()).read()
    assert (smi / "asked").exists() == (asked is not None)
    assert asked is None or asked in (smi / "asked").read_text()


def test_an_nvidia_smi_that_fails_is_asked_three_times(smi: Path) -> None:
    _program(smi / "bin" / "nvidia-smi", f"#!/bin/sh\necho x >> {smi}/asked\nexit 9\n")
    reader = MachineReader(os.getpid())
    for _ in range(6):
        assert CPU - {"CPU %", "process CPU %"} <= reader.read().keys()
    assert (smi / "asked").read_text() == "x\n" * 3


# -- rows of runs


def test_a_watch_s_child_writes_rows_about_the_training_process(tmp_path: Path, smi: Path) -> None:
    model, block = nn.Linear(4, 2), b"x" * 300_000_000
    with tl.watch(model, every=1, to=tmp_path / "run", system_secs=0.05, tell=lambda text: None):
        wait_until(lambda: model(torch.ones(2, 4)).sum().backward() or rows_of(tmp_path / "run") > 2)
    table = system(tmp_path / "run")
    assert {*CPU, "GPU 0 %", "Step"} <= set(table.columns)
    assert float(table["process RAM GB"][-1]) > len(block) / 1e9, "the training process's, not the child's"
    assert int(table["Step"][-1]) > 0


def test_a_live_loop_with_a_folder_writes_rows_and_its_page_has_them(tmp_path: Path, smi: Path) -> None:
    model = nn.Linear(4, 2)
    with tl.live(model, to=tmp_path / "run", open_server=False, system_secs=0.05) as view:
        source = LiveSource(view.path or "")
        model(torch.ones(2, 4)).sum().backward()
        wait_until(lambda: "system" in source.tables and source.tables["system"].count > 2, poll=source.poll)
        source.close()
    assert {*CPU, "GPU 0 %"} <= set(system(tmp_path / "run").columns)


def session(run: Path | None, **options: Any) -> Session:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    data = TensorDataset(torch.rand(8, 4), torch.rand(8, 2))
    return Session(
        models={"net": model}, optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": Loader(data, 4)}, losses={"loss": nn.MSELoss()},
        stages=[Stage(("train",), (), EpochsCompleted(10_000))], to=run, options=Options(**options),
    )  # fmt: skip


def test_a_training_session_writes_rows_beside_its_own(tmp_path: Path) -> None:
    training = session(tmp_path / "run", system_secs=0.05, watch={"every": 100})
    for _ in training.run():
        if rows_of(tmp_path / "run") > 1:
            training.stop_reason = "enough"
    assert CPU <= set(system(tmp_path / "run").columns)
    assert not (tmp_path / "run" / "watch" / "log" / "system").exists(), "once is enough"


def test_the_machine_is_read_between_no_two_lines_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread, or in the process of the watch: what is patched here is not seen there."""
    threads, read = list[str](), MachineReader.read

    def noticed(reader: MachineReader) -> dict[str, float]:
        threads.append(threading.current_thread().name)
        return read(reader)

    monkeypatch.setattr(MachineReader, "read", noticed)
    model = nn.Linear(4, 2)
    with tl.watch(model, every=1, to=tmp_path / "watch", system_secs=0.05, tell=lambda text: None):
        wait_until(lambda: model(torch.ones(2, 4)).sum().backward() or rows_of(tmp_path / "watch") > 1)
    assert threads == []
    with tl.live(model, to=tmp_path / "live", open_server=False, system_secs=0.05):
        wait_until(lambda: model(torch.ones(2, 4)).sum().backward() or rows_of(tmp_path / "live") > 1)
    training = session(tmp_path / "session", system_secs=0.05)
    for _ in training.run():
        if rows_of(tmp_path / "session") > 1:
            training.stop_reason = "enough"
    assert set(threads) == {"torcheer system"}


def test_of_two_in_one_run_one_takes_the_rows_and_the_other_goes_on_with_them(tmp_path: Path) -> None:
    def rows() -> SystemRows:
        return SystemRows(tmp_path, 0.03, step_of=lambda: 3, memory=dict)

    first, second = rows(), rows()
    wait_until(lambda: rows_of(tmp_path) > 3)
    first.close()
    before = rows_of(tmp_path)
    assert wait_until(lambda: rows_of(tmp_path) > before)
    second.close()


def test_without_a_folder_or_with_0_nothing_is_taken(tmp_path: Path) -> None:
    before = threading.active_count()
    SystemRows(None, 5.0, step_of=int, memory=dict)
    SystemRows(tmp_path, 0.0, step_of=int, memory=dict)
    assert threading.active_count() == before


def test_a_run_that_ends_sooner_has_no_rows(tmp_path: Path) -> None:
    rows = SystemRows(tmp_path, 60.0, step_of=int, memory=dict)
    rows.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_removed_stays_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rows = SystemRows(run, 0.02, step_of=int, memory=dict)
    wait_until(lambda: rows_of(run) > 1)
    wait_until(lambda: shutil.rmtree(run, ignore_errors=True) or not run.exists())
    time.sleep(0.1)
    assert not run.exists()
    rows.close()


def test_a_function_that_raises_ends_nothing(tmp_path: Path) -> None:
    calls: list[int] = []

    def memory() -> dict[str, float]:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("no GPU today")
        return {"cuda:0 allocated GB": 1.5}

    rows = SystemRows(tmp_path, 0.02, step_of=lambda: 7, memory=memory)
    wait_until(lambda: rows_of(tmp_path) > 0)
    rows.close()
    table = system(tmp_path)
    assert table["cuda:0 allocated GB"][0] == 1.5 and table["Step"][0] == 7


@pytest.mark.parametrize("value", [-1, "5", True, float("inf"), None])
def test_a_wrong_interval_is_refused(value: Any, tmp_path: Path) -> None:
    for begin in (tl.watch, tl.live):
        with pytest.raises(BadArgument, match="seconds between two rows are needed, such as 5, or 0 for none"):
            begin(nn.Linear(2, 2), to=tmp_path, system_secs=value)
    assert not list(tmp_path.iterdir())

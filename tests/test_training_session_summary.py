"""What a session shows of itself in Python: a summary before it trains, progress while it does, a repr at any time."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import Child
from seams import Alert, EpochDone, StepDone
from torch import nn
from training_loop_cases import network, session

from torcheer.errors import ArchiveBusy
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage

pytestmark = pytest.mark.usefixtures("one_thread")


def perceptron(directory: Path | None = None, **others: Any) -> Session:
    """A net with a frozen layer, on two loaders."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 3))
    model[2].requires_grad_(False)
    data = torch.utils.data.TensorDataset(torch.rand(30, 4), torch.randint(0, 3, (30,)))
    given: dict[str, Any] = {
        "models": {"net": model},
        "optimizers": {"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        "loaders": {"train": Loader(data, 8), "val": Loader(data, 30, shuffle=False)},
        "losses": {"loss": nn.CrossEntropyLoss()},
        "stages": [Stage(("train",), ("val",), EpochsCompleted(2))],
        "to": directory,
    }
    return Session(**{**given, **others})


SUMMARY = """\
net: Sequential on cpu
──────────────────────────
layer  type    parameters
──────────────────────────
0      Linear          40
1      ReLU             0
2.0    Linear          72
2.1    Tanh             0
3      Linear          27
──────────────────────────
139 parameters (556 B): 67 trained, 72 not

loader  samples   batches
train        30    4 of 8
val          30   1 of 30
stage 0: trains train, validates val, for 2 epochs
log: {log}"""


def tidy(text: str) -> list[str]:
    """ProgressLines with single spaces and rules of one length."""
    return [" ".join(line.replace("─", "").split()) for line in text.splitlines()]


def test_a_summary_tells_layers_parameters_device_and_samples(tmp_path: Path) -> None:
    found = perceptron(tmp_path / "run").summary()
    log = f"{tmp_path / 'run' / 'metrics'}, checkpoints beside it"
    assert tidy(found) == tidy(SUMMARY.format(log=log))
    assert repr(found) == str(found)  # a console and a notebook show it as it is


def test_a_deep_model_is_cut_in_the_middle_and_a_lazy_one_has_its_sizes() -> None:
    one = session({"deep": network(*[nn.Linear(4, 4) for _ in range(99)], nn.Linear(4, 1))})
    text = one.summary()
    assert "… 61 more …" in text and "99     Linear" in text and len(text.splitlines()) < 60
    lazy = nn.Sequential(nn.LazyLinear(3))
    made = perceptron(models={"net": lazy}, optimizers={"sgd": torch.optim.SGD(lazy.parameters(), 0.1)})
    assert any(line.split() == ["0", "Linear", "15"] for line in made.summary().splitlines())


def test_streams_have_no_number_of_samples() -> None:
    class Numbers(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield torch.ones(4), torch.zeros(())

    one = perceptron(loaders={"train": Loader(Numbers(), 5)}, stages=[Stage(("train",), ())])
    assert ["train", "a stream of 5"] == [tidy(one.summary())[-3].split(" ", 1)[0], tidy(one.summary())[-3][6:]]


# repr


def test_a_repr_says_how_far_it_is_and_where_the_log_is(tmp_path: Path) -> None:
    one = perceptron(tmp_path / "run")
    log = f"log: {tmp_path / 'run' / 'metrics'}, checkpoints beside it>"
    assert repr(one) == f"<Session of net on cpu; not begun, 1 stage; no alerts; {log}"
    seen = []
    for event in one.run():
        if isinstance(event, StepDone) and event.step == 6:
            seen.append(repr(one))
    assert "; stage 0 of 1, epoch 2, step 6; loss " in seen[0]
    assert "all trained, epoch 2, step 8; loss " in repr(one) and repr(one).endswith(log)


def test_alerts_are_counted_and_shown(tmp_path: Path) -> None:
    for _ in perceptron(tmp_path / "run").run():
        pass
    (newest,) = [path for path in (tmp_path / "run/checkpoints").iterdir() if path.name == "8"]
    os.truncate(newest / "model.safetensors", 10)
    one = perceptron(tmp_path / "run")
    told = [event.message for event in one.run() if isinstance(event, Alert)]
    assert told and one.alerts == told and "; 1 alert; " in repr(one)
    page = one._repr_html_()
    assert "cannot be used" in page and "<th style='text-align:left'>alert</th>" in page


def test_html_has_nothing_of_a_name_as_markup() -> None:
    one = session({"<b>": network()})
    assert "<b>" not in one._repr_html_() and "&lt;b&gt;" in one._repr_html_()


# Progress


def test_off_a_terminal_it_is_quiet_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in perceptron().run():
        pass
    assert capsys.readouterr().out == ""
    for _ in perceptron().run(progress=True):
        pass
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "net: Sequential on cpu" and "Training stage 0 in progress" in lines
    assert any(line.startswith("Epoch     2 [loss ") for line in lines) and lines[-1] == "Training is completed"


def test_showing_changes_no_event_and_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for progress in (False, True):
        torch.manual_seed(3)
        found.append([event.values for event in perceptron().run(progress=progress) if isinstance(event, EpochDone)])
    assert found[0] == found[1]


def test_whoever_leaves_in_the_middle_leaves_a_finished_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    events = perceptron().run()
    for event in events:
        if isinstance(event, StepDone) and event.step == 2:
            break
    events.close()
    assert "] =" in screen.getvalue() and screen.getvalue().endswith("\n")


def test_a_screen_that_breaks_does_not_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    one = perceptron()
    monkeypatch.setattr(sys, "stdout", Broken())
    for _ in one.run(progress=True):
        pass
    assert one.place.step == 8 and one.stop_reason == ""


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
from test_training_session_summary import perceptron
for _ in perceptron().run():
    pass
print("quiet now")
for _ in perceptron().run(progress=False):
    pass
"""


def test_on_a_terminal_a_script_shows_it_unless_asked_not_to() -> None:
    master, slave = pty.openpty()
    code = SCRIPT.format(tests=str(Path(__file__).parent))
    with Child("-c", code, stdout=slave, stderr=slave) as process:
        os.close(slave)
        text = b""
        while piece := read(master):
            text += piece
        os.close(master)
        process.ends()
    shown, quiet = text.decode().split("quiet now")
    assert "139 parameters" in shown and "Training is completed" in shown and not quiet.strip()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so where nobody writes any more
        return b""


@pytest.mark.slow
def test_in_a_notebook_it_is_shown_and_a_session_is_a_table(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    folder = str(Path(__file__).parent)
    start = f"import sys; sys.path.insert(0, {folder!r})\nfrom test_training_session_summary import perceptron"
    cells = [start, "one = perceptron()\nfor _ in one.run(): pass", "one", "one.summary()"]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = json.dumps(notebook.cells[1]["outputs"])
    assert "139 parameters" in said and "Training is completed" in said
    (shown,) = notebook.cells[2]["outputs"]
    assert (
        "all trained, epoch 2, step 8" in shown["data"]["text/html"]
        and "<Session of net" in shown["data"]["text/plain"]
    )
    assert notebook.cells[3]["outputs"][0]["data"]["text/plain"].startswith("net: Sequential on cpu\n")


# What is saved when it fails


def failing(directory: Path | None, at: int) -> Session:
    """A session whose model fails in one of its steps."""
    one, calls = perceptron(directory, options=Options(checkpoint_steps=3)), []

    def count(*_: Any) -> None:
        calls.append(1)
        if len(calls) == at:
            raise RuntimeError("no more")

    one.models["net"].register_forward_pre_hook(count)
    return one


def test_an_error_says_what_is_saved_and_what_is_not(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no more") as caught:
        list(failing(tmp_path / "run", 5).run())
    said = "\n".join(caught.value.__notes__)
    assert f"The newest checkpoint is {tmp_path / 'run/checkpoints/3'}: step 3, saved at " in said
    assert "The 1 step after it is not saved." in said
    with pytest.raises(RuntimeError) as caught:
        list(failing(None, 2).run())
    assert "Nothing of this run is saved: the session has no directory." in "\n".join(caught.value.__notes__)


def test_a_session_that_another_trains_says_nothing_of_its_checkpoints(tmp_path: Path) -> None:
    first = perceptron(tmp_path / "run").run()
    next(first)
    with pytest.raises(ArchiveBusy) as caught:
        list(perceptron(tmp_path / "run").run())
    first.close()
    assert not getattr(caught.value, "__notes__", ())

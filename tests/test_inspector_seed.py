"""PyTorch Inspector's own scripts run with nothing but their import changed, whatever way they are started and end."""

from __future__ import annotations

import json
import signal
import textwrap
from pathlib import Path

import pytest
from children import has_ended, run_python
from fast_cases import fast_first
from waiting import wait_until

ROOT = Path(__file__).parents[1]
SECS = 100  # for a script; a machine may be busy

# The guide's example to the letter, but for its import line. It only begins to track; TRAINING goes on from there.
GUIDE = """
import torch
from torchvision import models
from torcheer.inspector import ParrallelHandler, DataRecorder

def main():

    model = models.alexnet()

    #----------------------------------
    # Step 1: Define how to process the passed data
    #----------------------------------
    # Callback functions are used to process data passed from the main process to child processes.
    # DataRecorder is an example
    dr = DataRecorder((640,480), 20., 100, 'output')

    #----------------------------------
    # Step 2: Define a ParrallelHandler
    #----------------------------------
    # A ParallelHandler manages all child processes.
    ph = ParrallelHandler(callback_onrun=dr.tensor_plot2D, callback_onclosing=dr.flush, frequency=20.0, timeout=30.0)

    #----------------------------------
    # Step 3: Attach layer/layers or full model
    #----------------------------------
    ph.track_model(-1, {'model': model})
    ph.track_layer(-1, {'classifier0_': model.classifier[0], 'classifier3_': model.classifier[3], 'classifier6_': model.classifier[6]})
"""  # noqa: E501
TRAINING = """
    for step in range(21):
        model(torch.rand(1, 3, 64, 64)).square().mean().backward()
main()
"""
# torchvision's models without its compiled part, which has no build for every torch.
STUB = f"""
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import zoo_torchvision
zoo_torchvision.load()
"""
VIDEOS = ["classifier0__cpu_1_1", "classifier3__cpu_1_1", "classifier6__cpu_1_1", "model_cpu_0_1"]

# A script with callbacks of its own: they use its globals and share their object.
OWN = """
import json, os, signal, sys, time, torch
from torcheer.inspector import ParrallelHandler

DIGITS = 3
def rounded(value):
    return round(float(value), DIGITS)

class Notes:
    def __init__(self):
        self.lines = []
    def run(self, unique_id, key, internal_message, message, input_data):
        assert isinstance(input_data, torch.Tensor)
        self.lines.append([unique_id, key, internal_message, message, rounded(input_data.sum())])
    def close(self):
        with open("notes.json", "w") as file:
            json.dump(self.lines, file)

notes = Notes()
ph = ParrallelHandler(notes.run, notes.close, 2.0, 60.0)
model = torch.nn.Linear(2, 2)
unique_id, queue_to, queue_from, processes = ph.track_model(-1, {"model": model})
print(processes[0].pid, flush=True)
ph.set_internal_message("epoch:3")
with torch.no_grad():
    model.weight.fill_(1.0)
    model.bias.zero_()
    for step in range(5):
        model(torch.full((1, 2), float(step)))
"""
NOTED = [[0, "model", "epoch:3", "0", 0.0], [0, "model", "epoch:3", "2", 8.0], [0, "model", "epoch:3", "4", 16.0]]


def run(folder, script, *, arguments=("main.py",), stdin=None, code=0):
    """Run a script in a folder of its own, as a user does; what it printed."""
    (folder / "main.py").write_text(textwrap.dedent(script))
    environment = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    found = run_python(*arguments, cwd=folder, input=stdin, env=environment, status=code)
    return found


def frames(path):
    """How many frames of a video decode."""
    import av

    with av.open(str(path)) as video:
        return sum(1 for _ in video.decode(video=0))


# The guide


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The guide's script, run on a machine without CUDA, without a guard, without a stop."""
    pytest.importorskip("av")
    folder = tmp_path_factory.mktemp("guide")
    patient = GUIDE.replace("timeout=30.0", "timeout=300.0")  # four children begin at once, on a busy machine
    return folder, run(folder, STUB + patient + TRAINING)


@pytest.mark.slow
def test_the_guides_example_leaves_a_video_of_every_name(guide):
    assert sorted(path.name for path in (guide[0] / "output").iterdir()) == [f"{name}_video.mp4" for name in VIDEOS]


@pytest.mark.slow
@pytest.mark.parametrize("name", VIDEOS)
def test_the_guides_videos_have_a_frame_for_every_twentieth_step(guide, name):
    assert frames(guide[0] / "output" / f"{name}_video.mp4") == 2


@pytest.mark.slow
def test_the_guides_example_says_nothing(guide):
    assert (guide[1].stdout, guide[1].stderr) == ("", "")


@pytest.mark.slow  # the same once more
def test_our_copy_of_the_example_runs(tmp_path):
    found = run(tmp_path, "", arguments=("-c", CALL_EXAMPLE))
    assert found.stdout.split() == [f"output/{name}_video.mp4" for name in VIDEOS]
    assert frames(tmp_path / "output" / "model_cpu_0_1_video.mp4") == 1


CALL_EXAMPLE = f"""
import sys
sys.path.insert(0, {str(ROOT / "examples" / "inspector")!r})
import main
main.main(steps=3)
"""


# Every way a script is started; without a guard they all are


@pytest.mark.slow
def test_a_script_from_standard_input_works(tmp_path):
    run(tmp_path, "", arguments=("-",), stdin=OWN)
    assert json.loads((tmp_path / "notes.json").read_text()) == NOTED


@pytest.mark.slow
def test_cells_of_a_notebook_work(tmp_path):
    """A cell is compiled and run in a namespace that is no file's."""
    cells = [OWN[: OWN.index("notes = Notes()")], OWN[OWN.index("notes = Notes()") :]]
    run(tmp_path, f"""
        import code
        session = code.InteractiveInterpreter({{"__name__": "__main__"}})
        for number, cell in enumerate({cells!r}):
            session.runcode(compile(cell, f"<cell {{number}}>", "exec"))
        session.runcode(compile("ph.stop(True)", "<cell>", "exec"))
    """)  # fmt: skip
    assert json.loads((tmp_path / "notes.json").read_text()) == NOTED


@pytest.mark.slow
def test_ipython_works(tmp_path):
    pytest.importorskip("IPython")
    run(tmp_path, OWN, arguments=("-m", "IPython", "main.py"))
    assert json.loads((tmp_path / "notes.json").read_text()) == NOTED


# Every way a script ends


@pytest.mark.parametrize(
    ("ending", "code"),
    fast_first(
        [
            ("raise KeyError('a mistake in the training')", 1),
            ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
            ("ph.stop(False)", 0),
        ]
    ),
)
def test_what_was_sent_is_dealt_with_however_the_script_ends(tmp_path, ending, code):
    found = run(tmp_path, OWN + ending, code=code)
    assert json.loads((tmp_path / "notes.json").read_text()) == NOTED
    assert has_ended(int(found.stdout))


@pytest.mark.slow  # its child takes longer than the links themselves would wait
def test_the_end_of_a_script_waits_for_slow_callbacks_as_long_as_its_timeout_says(tmp_path):
    slow = OWN.replace("        assert isinstance", "        time.sleep(3)\n        assert isinstance")
    run(tmp_path, slow)
    assert json.loads((tmp_path / "notes.json").read_text()) == NOTED


def test_a_killed_script_leaves_readable_videos_and_no_process(tmp_path):
    pytest.importorskip("av")
    script = """
        import os, signal, time, torch
        from torcheer.inspector import ParrallelHandler, DataRecorder
        dr = DataRecorder((64, 48), 20., 100, 'output')
        ph = ParrallelHandler(dr.tensor_plot2D, dr.flush, 1, 30.0)
        model = torch.nn.Linear(8, 8)
        print(ph.track_model(-1, {'model': model})[3][0].pid, flush=True)
        for step in range(25):
            model(torch.rand(8, 8))
        while ph.accounts[0].handled < 25:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    found = run(tmp_path, script, code=-signal.SIGKILL)
    wait_until(lambda: has_ended(int(found.stdout)), secs=25)  # sooner than its own timeout
    assert frames(tmp_path / "output" / "model_cpu_0_1_video.mp4") >= 24


# What an import costs


@pytest.mark.parametrize("name", ["", "DataRecorder", "Alert", "open_watch"])
def test_the_childs_side_of_the_package_imports_without_torch(name, tmp_path):
    look = f"torcheer.inspector.{name}" if name else "dir(torcheer.inspector)"
    found = run(tmp_path, f"import sys, torcheer.inspector\n{look}\nprint('torch' in sys.modules)")
    assert found.stdout.split() == ["False"]


def test_every_public_name_is_there():
    import torcheer.inspector as inspector

    assert inspector.ParrallelHandler is inspector.ParallelHandler
    assert all(getattr(inspector, name) is not None for name in inspector.__all__)
    assert dir(inspector) == sorted(inspector.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'ParallelHandlr'; it has Alert, DataRecorder, Every"):
        inspector.ParallelHandlr  # noqa: B018

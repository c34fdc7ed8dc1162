"""Programs for eTorch, made for these tests with every name of its two examples: they run with a page, and end."""

from __future__ import annotations

import importlib
import importlib.util
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import Child, run_python
from seams import Every, Wants
from studio_client import Client
from studio_pages import opened  # noqa: F401  (a fixture)
from studio_programs import GONE, Panel

PROGRAMS = Path(__file__).parent / "etorch_originals"
EACH = Wants(variables=("Act", "Net"), weights=True, train=Every("trial"), test=Every("trial"))


TESTED_APART = {("etor", "NetView"), ("etorch", "Prjn")}  # tests/test_etorch_compat.py
# Every name of eTorch's packages that one of its examples uses.
NAMES = {
    "agg": "AggMean AggSum Mean Sum", "emer": "Forward Hidden Input Target",
    "env": "CounterChg CounterCur Epoch FixedTable", "eplot": "FixMax FixMin FloatMax Off On Plot2D",
    "etable": "AddAggName Column NewIdxView Schema Tab Table",
    "etensor": "FLOAT32 FLOAT64 Float32 INT64 STRING", "etor": "NetView State", "etorch": "Layer Network Prjn",
    "gi": "ActOpts Action AddNewSplitView AddNewTabView AddNewToolBar AppName Dialog DialogAccepted DlgOpts FileName "
    "NewMainWindow OpenURL PromptDialog SetAppAbout SetAppName StringPromptDialog StringPromptDialogValue Window",
    "go": "Slice_float32 Slice_int Slice_string nil", "mat32": "Vec3 X", "netview": "NetView", "params": "Sets",
    "patgen": "PermutedBinaryRows", "prjn": "NewFull", "pyet": "etable_to_py", "pygiv": "ClassViewObj",
    "pyparams": "ApplyParams", "rand": "Seed", "relpos": "Above Front Left Rel RightOf",
    "split": "Agg All Desc GroupBy",
}  # fmt: skip


@pytest.mark.parametrize("package", NAMES)
def test_every_name_of_the_examples_is_there_and_used_by_a_program_here(package: str) -> None:
    programs = " ".join(file.read_text() for file in PROGRAMS.glob("*.py"))
    module = getattr(importlib.import_module("torcheer_originals.etorch"), package)
    for name in NAMES[package].split():
        assert hasattr(module, name)
        assert re.search(rf"\b{package}\.{name}\b", programs) or (package, name) in TESTED_APART, (package, name)


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A program whose window is open, and a viewer of ours instead of the process that it has started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHEER_NO_BROWSER", "1")
    path = PROGRAMS / f"{request.param}.py"
    spec = importlib.util.spec_from_file_location(request.param, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.main([])
        page = module.Sim.Window.page
        page.viewer.close()
        with Client(page.host.path, EACH) as client:
            client.until(lambda: page.host.wants == EACH and client.source.state.can)
            yield module.Sim, client
    finally:
        module.Sim.Window.Close()
        module.Sim.Window.page.join()


@pytest.mark.parametrize("program", ["associator"], indirect=True)
def test_every_button_of_the_associator(program: tuple[Any, Client]) -> None:
    sim, client = program
    source = client.source
    assert set(source.state.can) == {
        "init", "train", "stop", "step_trial", "step_epoch", "step_run", "test_trial", "test_item", "test_all",
        "new_seed",
    }  # fmt: skip
    assert sim.Rate == 0.8  # as its sheet of parameters says
    client.until(lambda: len(client.rows("Patterns").get("Name", ())) == 6)

    client.press("step_trial")
    client.until(lambda: source.state.counters.get("Trial") == 0 and source.state.status == "paused")
    client.until(lambda: source.moments and source.moments[-1].counters.get("Name", "").startswith("pattern"))
    assert np.array_equal(client.newest("Hidden", "Act"), client.newest("Hidden", "Net").clip(0))

    client.press("step_epoch")
    client.until(lambda: len(client.rows("Epochs").get("SSE", ())) == 1)
    client.press("test_all")
    client.until(lambda: len(client.rows("Trials").get("TrialName", ())) == 6)
    client.until(lambda: len(client.rows("Tests").get("SSE", ())) == 1)
    assert list(client.rows("Trials")["TrialName"]) == [f"pattern {row}" for row in range(6)]
    assert np.shape(client.rows("Trials")["OutAct"][0]) == (3, 3)
    assert client.rows("ErrorStats").keys() == {"SSE:Sum", "OutAct:Mean"}

    client.press("test_item", item=4)
    client.until(lambda: source.moments[-1].counters.get("Name") == "pattern 4" and source.moments[-1].test)
    assert np.array_equal(client.newest("Input", "Act"), np.ravel(client.rows("Patterns")["Input"][4]))

    client.change("MaxEpochs", 3)
    client.until(lambda: client.parameters["MaxEpochs"] == 3)
    assert sim.MaxEpochs == 3
    client.press("step_run")
    client.until(lambda: len(client.rows("Runs").get("SSE", ())) == 1)
    assert list(client.rows("Runs")["Params"]) == ["Base"] and Path("Small associator.wts").exists()
    client.until(lambda: source.state.status == "paused")
    assert sim.Strengths.keys() == {"InputToHidden", "HiddenToOutput"} and min(sim.Strengths.values()) > 0
    sim.Window.press("Reset Runs")  # which the page has no button for
    client.until(lambda: not len(client.rows("Runs").get("SSE", ())))

    client.press("new_seed")
    client.until(lambda: client.parameters["Seed"] == 2)
    client.press("init")
    client.until(lambda: source.state.counters.get("Epoch") == 0)


@pytest.mark.parametrize("program", ["associator"], indirect=True)
def test_training_is_stopped_from_the_page_and_goes_on(program: tuple[Any, Client]) -> None:
    sim, client = program
    client.change("MaxEpochs", 10**6)
    client.until(lambda: sim.MaxEpochs == 10**6)
    client.press("train")
    client.until(lambda: client.source.state.status == "running" and len(client.rows("Epochs").get("SSE", ())) > 2)
    client.press("stop")
    client.until(lambda: client.source.state.status == "paused" and not sim.Running)
    epochs = len(sim.Epochs)
    client.until(lambda: len(client.rows("Epochs")["SSE"]) == epochs)
    assert np.allclose(client.rows("Epochs")["SSE"], sim.Epochs["SSE"])
    client.press("step_epoch")
    client.until(lambda: len(client.rows("Epochs")["SSE"]) == epochs + 1)
    client.press("train")  # the page is closed while it trains: the loop ends with it
    client.until(lambda: client.source.state.status == "running")


@pytest.mark.parametrize("program", ["associator"], indirect=True)
def test_what_a_button_raises_is_shown_and_the_next_one_works(program: tuple[Any, Client]) -> None:
    sim, client = program
    sim.Inputs = None
    client.press("step_trial")
    client.until(lambda: any("Step Trial: TypeError" in alert.text for alert in client.source.alerts))
    assert sim.Running  # as the program left it
    client.press("step_trial")
    client.until(lambda: any("Step Trial cannot be pressed now" in alert.text for alert in client.source.alerts))
    client.press("new_seed")
    client.until(lambda: client.parameters["Seed"] == 2)


@pytest.mark.parametrize("program", ["feature_maps"], indirect=True)
def test_every_button_of_the_feature_maps(program: tuple[Any, Client]) -> None:
    _, client = program
    source = client.source
    assert set(source.state.can) == {"init", "test_trial", "test_item", "test_all"}
    at = {placed.layer.name: placed for placed in source.net.layers}
    assert at["C1"].place[1] > at["Image"].place[1] and at["P1"].place[0] > at["C1"].place[0]
    assert at["Out"].place[1] == at["P1"].place[1] == at["C1"].place[1]
    client.press("test_trial")
    client.until(lambda: source.moments and source.moments[-1].counters.get("Name") == "pictures/cat1")
    assert client.newest("C1", "Act").shape == (8 * 12 * 12,)
    client.press("test_all")
    client.until(lambda: len(client.rows("Trials").get("Best", ())) == 3 and client.rows("Tests").get("PctErr"))
    assert np.shape(client.rows("Trials")["InAct"][0]) == (1, 3, 12, 12)
    client.press("test_item", item=2)
    client.until(lambda: source.state.counters.get("Name") == "pictures/owl" and source.state.status == "paused")
    client.until(lambda: client.parameters["Index"] == 2)
    assert "class" in client.parameters["Best"]


def address(process: Child) -> str:
    """The address among the lines that a program prints."""
    while not (found := re.match(r"http://127\S+", process.line())):
        pass
    return found[0]


@pytest.mark.parametrize(
    ("name", "buttons", "tabs"),
    [
        ("associator", ["Step epoch", "Test all"], ["Small associator: Epochs", "Small associator: Tests"]),
        ("feature_maps", ["Test trial", "Test all"], ["Maps: TestsPlot"]),
    ],
)
def test_a_program_shows_its_page_in_a_browser_and_ends_by_ctrl_c(
    name: str, buttons: list[str], tabs: list[str], open_page: Any, tmp_path: Path
) -> None:
    environment = {"TORCHEER_NO_BROWSER": "1", "OMP_NUM_THREADS": "1"}
    with Child(PROGRAMS / f"{name}.py", cwd=tmp_path, env=environment) as process:
        open_page.forgiven += GONE
        page = open_page(address(process))
        panel = Panel(page)
        for button in buttons:
            panel.press(button)
        panel.open("Tables")
        page.wait_for_selector(".grid")
        panel.open("Plots")
        for title in tabs:
            page.get_by_text(title).first.wait_for(state="attached")
        page.close()
        process.send_signal(signal.SIGINT)
        process.ends()
        assert process.error_text.count("eTorch's window is a page in the browser here") == 1
        assert "Traceback" not in process.error_text


def test_a_program_at_a_prompt_ends_when_that_is_left(tmp_path: Path) -> None:
    environment = {"TORCHEER_NO_BROWSER": "1", "OMP_NUM_THREADS": "1"}
    done = run_python(
        "-i", PROGRAMS / "feature_maps.py", stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path
    )  # nothing is typed: the prompt's end
    assert "http://127" in done.stdout and "Traceback" not in done.stderr

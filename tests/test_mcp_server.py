"""`torcheer mcp`: a client of the official package asks our server, over a real process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from fast_cases import fast_first
from torch.utils.data import TensorDataset

import torcheer as tl
from torcheer.errors import TorcheerError
from torcheer.training import EpochsCompleted, Loader, Session, Stage

mcp = pytest.importorskip("mcp")
COMMAND = [sys.executable, "-m", "torcheer", "mcp"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    tl.log_forward_pass(model, torch.rand(2, 4)).save(root / "pass")
    session = Session(
        models={"net": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": Loader(TensorDataset(torch.rand(4, 4), torch.rand(4, 3)), batch_size=2)},
        losses={"loss": torch.nn.MSELoss()},
        stages=[Stage(("train",), stop=EpochsCompleted(2))],
        to=root / "run",
    )
    for _ in session.run(progress=False):
        session.log(bad=float("nan"))
    with tl.watch(model, to=root / "watched", every=1, keep=("0/output",)):
        for _ in range(2):
            model(torch.full((2, 4), float("nan"))).sum().backward()
    return root


def asked(folder: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Start the server as an assistant does and call its tools; the list of tools comes first."""

    async def talk() -> list[Any]:
        server = mcp.StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(folder)], env=dict(os.environ))
        async with mcp.Client(server) as client:
            answers: list[Any] = [(await client.list_tools()).tools]
            for name, arguments in calls:
                answers.append(await client.call_tool(name, arguments))
            return answers

    return anyio.run(talk)


def test_an_assistant_reads_runs_layers_values_and_pictures(folder: Path) -> None:
    tools, runs, tables, metrics, alerts, layers, values, part, graph, image, outside, absent = asked(
        folder,
        ("list_runs", {}),
        ("metrics", {"run": "run"}),
        ("metrics", {"run": "run", "table": "logged", "last": 1}),
        ("alerts", {"run": "watched"}),
        ("layers", {"path": "pass", "pattern": "lin*_1"}),
        ("values", {"path": "pass", "layer": "linear_1"}),
        ("values", {"path": "watched", "layer": "0", "variable": "output", "index": [1]}),
        ("picture", {"path": "pass"}),
        ("picture", {"path": "pass", "layer": "linear_1"}),
        ("values", {"path": "../elsewhere", "layer": "x"}),
        ("values", {"path": "pass", "layer": "linear_9"}),
    )
    assert {tool.name for tool in tools} == {"list_runs", "metrics", "alerts", "layers", "values", "picture"}
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert {"pass", "run", "watched"} <= {run["name"] for run in answer(runs)["runs"]}
    assert answer(tables)["tables"]["train_epoch"]["rows"] == 2
    assert answer(metrics)["columns"]["bad"] == ["nan"], answer(metrics)
    assert "nan_inf" in {alert["rule"] for alert in answer(alerts)["alerts"]}
    assert [layer["name"] for layer in answer(layers)["layers"]] == ["linear_1_1"]
    stored: Any = tl.load(folder / "pass")
    assert answer(values)["numbers"] == stored["linear_1"].tensor_contents.tolist()
    assert answer(part)["numbers"] == ["nan"] * 3 and answer(part)["nans"] == 3
    for picture in (graph, image):
        assert picture.content[0].mime_type == "image/png" and len(picture.content[0].data) > 100
    assert outside.is_error and "outside of the folder" in outside.content[0].text
    assert absent.is_error and "linear_1" in absent.content[0].text


def answer(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """A server over HTTP: its address and its token."""
    with subprocess.Popen([*COMMAND, str(folder), "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address, token = process.stderr.readline().strip(), process.stderr.readline().strip()
        yield address, token.removeprefix("Authorization: Bearer ")
        process.terminate()


def test_over_http_the_token_and_our_own_address_are_asked_for(served: tuple[str, str]) -> None:
    address, token = served
    good = {"Authorization": f"Bearer {token}"}
    assert status(address, good) == 200
    assert status(address, {}) == 401 and status(address, {"Authorization": "Bearer wrong"}) == 401
    assert status(address, good | {"Host": "evil.example"}) == 421
    assert status(address, good | {"Origin": "https://evil.example"}) == 403


def status(address: str, headers: dict[str, str]) -> int:
    info = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(address, body, {**accepted, **headers})
    try:
        with urllib.request.urlopen(request) as response:
            code: int = response.status
            return code
    except urllib.error.HTTPError as error:
        return error.code


def test_a_pattern_is_a_part_of_the_name_with_stars_and_question_marks(folder: Path) -> None:
    from seams import RunTools

    tools = RunTools(folder)
    for pattern, count in (("linear", 1), ("in*r_?", 1), ("linear_?_?", 1), ("^linear", 0), ("[l]inear", 0), ("(", 0)):
        assert tools.layers("pass", pattern)["count"] == count, pattern
    assert tools.picture("watched", "0", "output").startswith(b"\x89PNG")


def test_no_pattern_takes_more_than_a_moment(folder: Path) -> None:
    """Nested repeats of a regular expression froze the server for all."""
    from seams import _fits

    name = "a" * 10_000
    for pattern in ("(a+)+$", "*a" * 50 + "b", "(a|aa)+b", "?" * 500 + "*" * 500 + "b"):
        assert not _fits(pattern, name)


def test_a_run_with_a_name_of_its_own_is_opened_by_its_path(tmp_path: Path) -> None:
    from seams import RunNotes, RunTools, write_notes

    from torcheer.integrations import OutsideRun

    with OutsideRun(tmp_path / "project" / "a", made_by="a test", system_secs=0) as run:
        run.log({"loss": 1.0}, 0)
    write_notes(tmp_path / "project" / "a", RunNotes("the first run"))
    tools = RunTools(tmp_path)
    for pattern in ("", "project", "first"):
        [listed] = tools.list_runs(pattern)["runs"]
        assert (listed["path"], listed["name"]) == ("project/a", "the first run")
    assert tools.metrics(listed["path"], "metric")["columns"]["loss"] == [1.0]


def test_an_empty_cell_of_the_metrics_is_null_and_a_nan_that_was_logged_says_so(tmp_path: Path) -> None:
    from seams import RunTools

    from torcheer.integrations import OutsideRun

    with OutsideRun(tmp_path / "a", made_by="a test", system_secs=0) as run:
        run.log({"loss": 1.0, "tokens": 512}, 0)
        run.log({"loss": float("nan"), "rate": 0.5}, 1)
    columns = RunTools(tmp_path).metrics("a", "metric")["columns"]
    assert columns["loss"] == [1.0, "nan"]
    assert (columns["tokens"], columns["rate"]) == ([512, None], [None, 0.5])


def test_every_tool_explains_broken_input(folder: Path) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("metrics", {"run": "run", "table": "train_epoch", "last": -3}, "last=-3: it is how many rows"),
        ("metrics", {"run": "run", "table": "train_epok"}, "Did you mean 'train_epoch'"),
        ("metrics", {"run": "run", "table": "train_epoch", "last": "x"}, "valid integer"),
        ("metrics", {}, "Field required"),
        ("metrics", {"run": "pass"}, "which has no metrics; runs have"),
        ("alerts", {"run": "nowhere"}, "there is nothing at 'nowhere'; list_runs"),
        ("layers", {"path": "/"}, "outside of the folder"),
        ("values", {"path": "a\0b", "layer": "x"}, "is no path; list_runs"),
        ("values", {"path": "pass", "layer": "linear_1", "index": [9]}, "is outside of a value of shape"),
        ("values", {"path": "pass", "layer": "linear_1", "index": "abc"}, "index"),
        ("picture", {"path": "run"}, "which has no graph; name a layer"),
        ("erase", {}, "Unknown tool: erase"),
    ]
    _, *answers = asked(folder, *((name, arguments) for name, arguments, _ in calls))
    for (name, arguments, words), answered in zip(calls, answers, strict=True):
        assert answered.is_error and words in answered.content[0].text, (name, arguments, answered.content[0].text)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind of file."""
    from safetensors.torch import save_file

    root = tmp_path_factory.mktemp("kinds")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    save_file(model.state_dict(), root / "w.safetensors")
    torch.save(model.state_dict(), root / "w.pt")
    torch.export.save(torch.export.export(model, (torch.rand(2, 4),)), root / "w.pt2")
    tl.log_forward_pass(model, torch.rand(2, 4)).save(root / "pass")
    tl.extract(model, TensorDataset(torch.rand(6, 4)), layers=["0"], to=root / "features", batch_size=2)
    with tl.watch(model, to=root / "watched", every=1, keep=("0/output",)):
        model(torch.rand(2, 4)).sum().backward()
    return root


KINDS = [("w.safetensors", "0.weight"), ("w.pt", "0.weight"), ("w.pt2", "0.weight"), ("pass", "linear_1_1"),
         ("features", "0"), ("watched", "0")]  # fmt: skip


def test_layers_values_and_pictures_of_every_kind_of_file_are_answered(kinds: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("layers", {"path": path}) for path, _ in KINDS]
    asked_of: list[dict[str, Any]] = [{"path": path, "layer": layer} for path, layer in KINDS]
    asked_of[-1]["variable"] = "output"
    calls += [(tool, where) for tool in ("values", "picture") for where in asked_of]
    _, *answers = asked(kinds, *calls)
    for (path, layer), listed in zip(KINDS, answers):
        found = answer(listed)["layers"]
        assert layer in [row["name"] for row in found], (path, found)
    for (path, _), values, picture in zip(KINDS, answers[6:12], answers[12:], strict=True):
        assert answer(values)["count"] in (6, 12, 18), (path, values)
        assert not picture.is_error and picture.content[0].mime_type == "image/png", (path, picture)


def test_every_kind_of_model_file_and_log_is_answered_by_the_reading_process(kinds: Path, tmp_path: Path) -> None:
    from test_modelfiles import write_onnx

    write_onnx(tmp_path / "w.onnx")
    for name in ("quantised.gguf",):
        shutil.copy(Path(__file__).parent / "data" / "modelfiles" / name, tmp_path / name)
    shutil.copytree(Path(__file__).parent / "data" / "tensorboard", tmp_path / "board")
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning" / "metrics.csv").write_text("epoch,step,loss\n0,9,1.5\n")
    for name in ("w.safetensors", "w.pt", "w.pt2"):
        shutil.copy(kinds / name, tmp_path / name)
    code = "import sys; from pathlib import Path; from torcheer.mcp_server.run_tools import RunTools\n"
    code += f"t = RunTools(Path({str(tmp_path)!r})); print(t.list_runs()['count'])\n"
    code += "for p in ('w.safetensors', 'w.pt', 'w.pt2', 'w.onnx', 'quantised.gguf'): print(t.layers(p)['count'])\n"
    code += "for r in ('board', 'lightning'): print(list(t.metrics(r)['tables']))\n"
    code += "print(t.metrics('board', 'metric', ['acc'], 1)['columns'])\n"
    code += "for tool in (t.layers, t.alerts, lambda p: t.values(p, 'acc'), t.picture):\n"
    code += "    try: tool('board')\n"
    code += "    except ValueError as e: print(e)\n"
    code += "    except LookupError as e: print(e)\n"
    code += "print([m for m in sys.modules if m.startswith('torcheer.foreign.readers')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "3",
        "2",
        "2",
        "2",
        "6",
        "11",
        "['metric', 'weights histogram']",
        "['metric']",
        "{'acc': [0.949999988079071]}",
        "board is a log of another program, which has metrics and no layers",
        "board is a log of another program, which has no alerts; runs and watches have",
        "board is a log of another program, which has metrics and no layers",
        "board is a log of another program, which has metrics and no layers",
        "[]",
    ], done.stdout


class Evil:
    """Pickled, it names a function of a module that lies in the folder."""

    def __reduce__(self) -> Any:
        import canary

        return canary.sing, ()


def test_nothing_in_the_folder_is_run_or_changed_by_any_tool(
    folder: Path, kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seams import RunTools

    served, sung = tmp_path / "served", tmp_path / "sung"
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("CANARY", str(sung))
    shutil.copytree(folder, served)
    shutil.copytree(kinds, served / "kinds")
    (served / "canary.py").write_text("import os\nopen(os.environ['CANARY'], 'w').close()\ndef sing(): return 1\n")
    monkeypatch.syspath_prepend(served)
    monkeypatch.chdir(served)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    torch.save({"weight": Evil()}, served / "evil.pt")
    (served / "lightning").mkdir()
    (served / "lightning" / "metrics.csv").write_text("step,loss\n0,1.5\n")
    (served / "lightning" / "hparams.yaml").write_text("a: !!python/object/apply:canary.sing []\n")
    del sys.modules["canary"]
    sung.unlink()

    def contents() -> dict[str, tuple[int, bytes]]:
        files = [path for path in served.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before, tools, answered = contents(), RunTools(served), set[str]()
    assert {"run", "pass", "watched", "lightning"} <= {row["path"] for row in tools.list_runs()["runs"]}
    assert tools.metrics("lightning")["tables"]
    for path in ["run", "pass", "watched", "evil.pt", *(f"kinds/{path}" for path, _ in KINDS)]:
        for tool in (tools.metrics, tools.alerts, tools.layers, tools.picture):
            with suppress(TorcheerError):
                tool(path)
                answered.add(tool.__name__)
        with suppress(TorcheerError):
            tools.values(path, dict(KINDS).get(path.removeprefix("kinds/"), "0"))
            answered.add("values")
    assert answered == {"metrics", "alerts", "layers", "picture", "values"}
    assert contents() == before and not sung.exists() and "canary" not in sys.modules


@pytest.mark.parametrize("kind", ["onnx", "run", "index", "checkpoint"])
def test_a_link_out_of_the_folder_is_refused_whatever_follows_it(tmp_path: Path, kind: str) -> None:
    from seams import RunTools
    from test_modelfiles import MODEL

    served, outside = tmp_path / "served", tmp_path / "outside"
    served.mkdir()
    outside.mkdir()
    if kind == "onnx":
        from onnx import TensorProto, helper, save

        tensor = TensorProto(name="secret", dims=[2], data_type=TensorProto.FLOAT, data_location=1)
        tensor.external_data.add(key="location", value="weights.bin")
        (outside / "weights.bin").write_bytes(b"\0\0\x80\x3f" * 2)
        (served / "weights.bin").symlink_to(outside / "weights.bin")
        save(helper.make_model(helper.make_graph([], "g", [], [], [tensor])), served / "m.onnx")
        asked_for = [("layers", "m.onnx"), ("values", "m.onnx")]
    elif kind == "index":
        from safetensors.torch import save_file

        save_file(MODEL.state_dict(), outside / "a.safetensors")
        (served / "a.safetensors").symlink_to(outside / "a.safetensors")
        (served / "m.safetensors.index.json").write_text('{"weight_map": {"conv.bias": "a.safetensors"}}')
        asked_for = [("layers", "m.safetensors.index.json"), ("layers", "a.safetensors")]
    else:
        live = tl.live(MODEL, to=outside / "run")
        live.log(loss=0.25)
        live.close()
        if kind == "run":
            shutil.copytree(outside / "run", served / "run")
            shutil.rmtree(served / "run" / "log")
            (served / "run" / "log").symlink_to(outside / "run" / "log")
        else:
            (served / "run").symlink_to(outside / "run")
        asked_for = [("metrics", "run"), ("layers", "run"), ("alerts", "run")]
    tools = RunTools(served)
    for tool, path in asked_for:
        with pytest.raises(TorcheerError, match="out") as caught:
            getattr(tools, tool)(path, *(["secret"] if tool == "values" else []))
        assert any(f"{words} of" in str(caught.value) for words in ("leads out", "link out", "outside"))
    assert all("0.25" not in str(row) for row in tools.list_runs()["runs"])
    if kind == "run":
        (row,) = tools.list_runs()["runs"]
        assert "is a link out of the folder that is served" in row["summary"]


def test_a_slow_request_holds_up_no_other() -> None:
    from seams import tool_server

    begun, released = threading.Event(), threading.Event()

    def slow(path: str) -> str:
        begun.set()
        assert released.wait(60)
        return path

    async def ask() -> list[str]:
        done = []

        async def call(tool: Any, path: str) -> None:
            done.append(await tool(path))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, tool_server._explained(slow, None), "slow")
            await anyio.to_thread.run_sync(begun.wait)
            await call(tool_server._explained(lambda path: path, None), "quick")
            released.set()
        return done

    assert anyio.run(ask) == ["quick", "slow"]


def test_a_request_that_takes_too_long_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.server.mcpserver.exceptions import ToolError
    from seams import tool_server

    released = threading.Event()

    def endless() -> None:
        released.wait(60)

    monkeypatch.setattr(tool_server, "MOST_SECS", 0.05)
    with pytest.raises(ToolError, match=r"endless took more than 0 s; ask for less"):
        anyio.run(tool_server._explained(endless, None))
    released.set()


@pytest.mark.parametrize("options", fast_first([[], ["--port", "0"]]))
def test_sigterm_ends_it_at_once_whatever_it_does(tmp_path: Path, options: list[str]) -> None:
    """It is stopped while its thread holds Python's lock in C, where no handler of Python's would run."""
    busy = "import sys, threading, torcheer.mcp_server.run_tools as t; from torcheer.cli import main\n"
    busy += "import itertools, collections\n"
    busy += "def hold(): print('holds', file=sys.stderr, flush=True); collections.deque(itertools.repeat(0), 0)\n"
    busy += "real = t.RunTools.__init__\n"
    busy += "def begin(self, folder): real(self, folder); threading.Timer(1, hold).start()\n"
    busy += "t.RunTools.__init__ = begin\n"
    busy += f"main(['mcp', {str(tmp_path)!r}, *{options!r}])"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", busy], text=True, **pipes) as process:
        assert process.stderr is not None
        while process.stderr.readline().strip() != "holds":
            assert process.poll() is None
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM

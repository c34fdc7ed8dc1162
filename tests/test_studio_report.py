"""Reports: what is in the file, what is left out and said so, what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import run_python
from seams import (
    Layer,
    Moment,
    Network,
    RecordedValue,
    Report,
    Source,
    Timeline,
    Variable,
    net_of,
    parse_frame,
)
from torch import nn

import torcheer as tl
from torcheer import Image
from torcheer.cli import main
from torcheer.errors import BadArgument

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Blocks:
    """The data of a report, read as its page does."""

    def __init__(self, report: Path | Report) -> None:
        self.html = Path(report).read_text()
        data = base64.b64decode(re.findall(r'<script type="application/octet-stream" id="report">(.*?)<', self.html)[0])
        (length,) = struct.unpack_from("<I", data)
        self.index = json.loads(data[4 : 4 + length])
        self.blocks = {
            json.dumps(entry["key"]): zlib.decompress(data[4 + length + entry["start"] :][: entry["count"]])
            for entry in self.index
        }
        self.messages = json.loads(self["messages"])

    def __getitem__(self, key: Any) -> bytes:
        return self.blocks[json.dumps([key] if isinstance(key, str) else list(key))]

    def __contains__(self, key: Any) -> bool:
        return json.dumps([key] if isinstance(key, str) else list(key)) in self.blocks

    def message(self, kind: str) -> Any:
        return next(message for message in self.messages if message["kind"] == kind)

    def scene(self, variable: str, moment: int) -> tuple[dict[str, str], dict[str, Any]]:
        """Reasons for what is missing, and the frames by layer."""
        pieces = _pieces(self["scene", variable, moment])
        return json.loads(pieces[0])["missing"], {
            head.layer: (head, payload) for head, payload in map(parse_frame, pieces[1:])
        }

    def layer(self, name: str, moment: int) -> tuple[Any, list[Any]]:
        """What the inspector is told of a layer: its tensors and their statistics, and cells of each."""
        pieces = _pieces(self["layer", name, moment])
        return json.loads(pieces[0])["value"], [_cells(piece) for piece in pieces[1:]]


def _pieces(block: bytes) -> list[bytes]:
    pieces = []
    while block:
        (length,) = struct.unpack_from("<I", block)
        pieces.append(block[4 : 4 + length])
        block = block[4 + length :]
    return pieces


def _cells(message: bytes) -> Any:
    (length,) = struct.unpack_from("<I", message, 4)
    head = json.loads(message[8 : 8 + length])
    return np.frombuffer(message[-(-(8 + length) // 8) * 8 :], head["coded"]).reshape(head["shape"])


@pytest.fixture(scope="module")
def history() -> tl.ModelHistory:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return tl.log_forward_pass(model, torch.rand(2, 1, 8, 8))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A watched live run with rows, an image and captures of nothing: no values."""
    return live_run(tmp_path_factory.mktemp("runs") / "run")


def live_run(path: Path, steps: int = 5) -> Path:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with tl.live(model, to=path, open_server=False, browser=False) as view:
        for step in range(steps):
            model(torch.rand(2, 3)).sum().backward()
            view.log(loss=1.0 / (step + 1), sample=Image(np.full((4, 4), step * 10, np.uint8)))
    return path


def test_a_report_has_the_graph_the_values_and_the_summary_of_a_pass(history: Any, tmp_path: Path) -> None:
    report = tl.report(history, tmp_path / "a.html")
    blocks = Blocks(report)
    assert blocks["ask_graph", "drawing"].startswith(b"TCHF")
    missing, frames = blocks.scene("Act", 0)
    assert missing == {} and [head.grid for head, _ in frames.values()] == [(1, 1, 8, 8), (2, 2, 6, 6), (1, 1, 1, 3)]
    summary = blocks.message("report_came")
    assert summary["graph"] is True and summary["modules"][1][:3] == ["(the model)", "Sequential", "475"]
    assert blocks.message("net_came")["net"]["name"] == "Sequential"
    assert report.size_bytes == os.path.getsize(report) < 2_000_000


def test_statistics_are_those_of_all_numbers_however_coarse_the_pictures_are(history: Any, tmp_path: Path) -> None:
    blocks = Blocks(tl.report(history, tmp_path / "a.html"))
    rows = next(message for message in blocks.messages if message.get("table") == "layer_statistics")["columns"]
    place = rows["Layer"].index("3")
    values = history["linear_1"].tensor_contents.double()
    assert rows["Numbers"][place] == 6 and rows["Mean"][place] == pytest.approx(values.mean().item(), rel=1e-12)


def test_the_inspector_finds_statistics_of_all_numbers_and_a_view_of_the_first_item(
    history: Any, tmp_path: Path
) -> None:
    head, slices = Blocks(tl.report(history, tmp_path / "a.html")).layer("3", 0)
    linear = history["3"].tensor_contents.detach().numpy()
    tensors = {(each["variable"], each["parameter"]): each for each in head["tensors"]["tensors"]}
    assert (tensors["Act", ""]["shape"], tensors["Act", ""]["items"]) == ([1, 3], 2)
    facts = {(each["variable"], each["parameter"]): each["facts"] for each in head["statistics"]}
    assert facts["Act", ""]["count"] == 6
    assert dict(facts["Act", ""]["measured"])["mean"] == pytest.approx(linear.mean(), rel=1e-6)
    assert sum(facts["Act", ""]["counts"]) == 6
    names = [(each["variable"], each["parameter"]) for each in head["slices"]]
    np.testing.assert_array_equal(slices[names.index(("Act", ""))].reshape(-1), linear[0])


def test_a_report_names_no_folder_of_the_machine_that_trained(tmp_path: Path) -> None:
    run = live_run(tmp_path / "run")
    spec = {"session_dir": str(run), "seed": 3, "source": {"config": f"{tmp_path}/training.yaml"}}
    (run / "spec.json").write_text(json.dumps(spec))
    blocks = Blocks(tl.report(run, tmp_path / "a.html"))
    assert blocks.message("report_came")["config"] == '{\n  "seed": 3\n}'
    assert [each["name"] for each in blocks.message("parameters_came")["parameters"]] == ["seed"]
    assert not [key for key, block in blocks.blocks.items() if str(tmp_path).encode() in block]


def test_no_request_can_leave_a_report(history: Any, tmp_path: Path) -> None:
    html = Blocks(tl.report(history, tmp_path / "a.html")).html
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', html)[0]
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy and "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert not re.findall(r"(?:src|href)=[\"']?(?!data:|x\b)(?:https?:|//|/)", html.split("<script", 1)[0])


def test_a_report_answers_as_one_page_would_have_been_told(run: Path, tmp_path: Path) -> None:
    blocks = Blocks(tl.report(run, tmp_path / "a.html"))
    kinds = [message["kind"] for message in blocks.messages]
    assert kinds[:2] == ["hello", "report_came"] and "caught_up" in kinds and "rows" in kinds
    rows = next(message for message in blocks.messages if "loss" in message.get("columns", ()))
    assert rows["columns"]["loss"] == [1.0, 0.5, 1 / 3, 0.25, 0.2]
    summary = blocks.message("report_came")
    assert summary["numbers"][0]["name"] == "loss" and summary["numbers"][0]["minimum"] == 0.2
    assert summary["graph"] and blocks["ask_graph", "drawing"].startswith(b"TCHF")


def test_samples_are_in_the_report(run: Path, tmp_path: Path) -> None:
    blocks = Blocks(tl.report(run, tmp_path / "a.html"))
    heads = blocks.message("samples_came")["samples"]
    assert len(heads) == 5 and blocks["sample", heads[-1]["id"]].startswith(b"TCHF")


def test_samples_take_the_room_that_nothing_else_needs_the_newest_first(tmp_path: Path) -> None:
    model, rng = nn.Identity(), np.random.default_rng(0)
    with tl.live(model, to=tmp_path / "run", open_server=False) as live:
        for _ in range(10):
            model(torch.ones(1))
            live.log(image=rng.integers(0, 255, (256, 256, 3), np.uint8))
    whole = tl.report(tmp_path / "run", tmp_path / "whole.html")
    assert whole.left_out == () and os.path.getsize(whole) > 3_000_000
    part = tl.report(tmp_path / "run", tmp_path / "part.html", most_bytes=2_500_000)
    steps = [head["step"] for head in Blocks(part).message("samples_came")["samples"]]
    assert 2 <= len(steps) < 10 and steps == list(range(10 - len(steps), 10))
    assert 2_000_000 < os.path.getsize(part) <= 2_500_000
    assert part.left_out == (f"{10 - len(steps)} of 10 samples: there was no room for them.",)


def test_names_cannot_break_out_of_the_file(tmp_path: Path) -> None:
    class Hostile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(HOSTILE.replace(".", ""), nn.Linear(2, 2))

        def forward(self, x: Any) -> Any:
            return next(self.children())(x)

    history = tl.log_forward_pass(Hostile(), torch.ones(1, 2))
    blocks = Blocks(tl.report(history, tmp_path / "a.html", title=HOSTILE))
    assert "onerror=alert" not in blocks.html.replace("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;", "")
    assert HOSTILE in json.dumps(blocks.message("net_came"), ensure_ascii=False)


def test_pictures_get_coarser_until_the_report_fits(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1))
    history = tl.log_forward_pass(model, torch.rand(1, 3, 96, 96))
    report = tl.report(history, tmp_path / "a.html", most_bytes=1_150_000)
    assert os.path.getsize(report) <= 1_150_000
    assert any("at most" in sentence and "cells" in sentence for sentence in report.left_out)
    assert "left out: Large layers" in str(report)
    _, frames = Blocks(report).scene("Act", 0)
    head, _ = frames["1"]
    values = history["conv2d_2"].tensor_contents
    assert head.block != (1, 1) and head.lo == values.min() and head.hi == values.max()
    assert Blocks(report).message("report_came")["left_out"] == list(report.left_out)


def test_a_size_that_the_page_alone_exceeds_is_refused_with_one_that_will_do(history: Any, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"more than most_bytes=10,000; give at least ([\d,]+)") as refused:
        tl.report(history, tmp_path / "a.html", most_bytes=10_000)
    least = int(re.findall(r"at least ([\d,]+)", str(refused.value))[0].replace(",", ""))
    assert os.path.getsize(tl.report(history, tmp_path / "a.html", most_bytes=least)) <= least


def test_steps_choose_the_states_that_are_kept(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "recording", states=8)
    report = tl.report(recording, tmp_path / "a.html", steps=[2, 6])
    assert [moment["step"] for moment in Blocks(report).message("moments")["came"]] == [2, 6]
    assert report.left_out == ("6 further recorded states; steps= (--steps) chooses which are kept.",)
    with pytest.raises(BadArgument, match="no state of 99 was recorded; steps with one: 0, 1, 2"):
        tl.report(recording, tmp_path / "a.html", steps=[99])


def test_of_many_states_some_are_kept_evenly_with_the_last(tmp_path: Path) -> None:
    report = tl.report(recorded(tmp_path / "recording", states=120), tmp_path / "a.html")
    steps = [moment["step"] for moment in Blocks(report).message("moments")["came"]]
    assert len(steps) == 50 and steps[0] == 0 and steps[-1] == 119
    assert max(np.diff(steps)) <= 3


def recorded(path: Path, states: int) -> Path:
    """A recording of a layer of four units, a state at each step."""
    timeline = Timeline()
    source = Source("recorded", path, timeline)
    source.net = net_of(Network("net", (Layer("in", (4,)),), (), (Variable("Act"),)))
    for step in range(states):
        timeline.add(Moment(step, step), {("in", "Act"): RecordedValue(0, np.full((1, 4), step, np.float32))}, {})
    return path / source.save("kept").name


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    program = f"""
import os, signal
import torch, torcheer as tl
from torch import nn
model = nn.Linear(3, 1)
view = tl.live(model, to={str(tmp_path / "run")!r}, open_server=False, browser=False)
for step in range(5):
    model(torch.rand(2, 3)).sum().backward()
    view.log(loss=float(step))
view.host._log.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""
    run_python("-c", program, status=-signal.SIGKILL)
    blocks = Blocks(tl.report(tmp_path / "run", tmp_path / "a.html"))
    assert dict(blocks.message("report_came")["facts"])["State"].startswith("killed, or crashed · ")
    outcome = blocks.message("outcome_came")
    assert outcome["heading"].startswith("Training was killed, or has crashed after step ")
    assert outcome["text"] == outcome["kept"] == outcome["command"] == ""  # it names no folder


def test_a_history_of_module_outputs_alone_has_a_report(tmp_path: Path) -> None:
    history = tl.log_forward_pass(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), structure=False)
    assert Blocks(tl.report(history, tmp_path / "a.html")).message("hello")["source"] == "pass"


def test_a_report_can_be_written_inside_a_running_loop(history: Any, tmp_path: Path) -> None:
    async def notebook_cell() -> Report:
        return tl.report(history, tmp_path / "a.html")

    assert asyncio.run(notebook_cell()).path.is_file()


def test_the_command_writes_a_report_and_says_what_is_left_out(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.startswith("run.html: ") and (tmp_path / "run.html").is_file()
    assert main(["report", str(run), "b.html", "--steps", "a"]) == 1
    assert "--steps takes whole numbers" in capsys.readouterr().err


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="report takes a history or the path of a run, not Linear; of a model"):
        tl.report(nn.Linear(1, 1), tmp_path / "a.html")  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="is a folder of runs; name one of them: run"):
        tl.report(run.parent, tmp_path / "a.html")
    with pytest.raises(BadArgument, match="is not there"):
        tl.report(tmp_path / "nothing", tmp_path / "a.html")


def test_a_report_that_cannot_be_written_leaves_the_old_one(history: Any, tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.write_text("old")
    with pytest.raises(BadArgument):
        tl.report(tmp_path / "nothing", target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]

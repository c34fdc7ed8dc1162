"""Times of operations: an accelerator's by its events, or called launch times; host clocks stand in for events here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_trace import FakeTrace
from seams import DeviceTimes, Recorder
from torch import nn

import torcheer as tl
from torcheer.errors import BadArgument
from torcheer.history import ModelHistory
from torcheer.records import TensorMeta


def history_on(device: str, timing: str = "host") -> ModelHistory:
    """A linear layer and a relu, as a capture on this device leaves them."""
    trace, outputs = FakeTrace(), (TensorMeta((2, 3), "torch.float32", device, 24),)
    x = trace.input(outputs=outputs)
    x = trace.linear("0", x, outputs=outputs, elapsed_secs=0.004, timing=timing)
    trace.add("relu", x, outputs=outputs, elapsed_secs=0.001, timing=timing)
    return ModelHistory(trace)


def texts_of(history: ModelHistory) -> dict[str, str]:
    """What people read of the times of a history."""
    drawing = history.draw(colour_by="time")
    graph = drawing.page_text({})
    return {
        "operation": str(history["linear_1"]), "history": str(history), "module": str(history.modules["0"]),
        "summary": str(history.summary()), "notebook": history._repr_html_(), "legend": drawing.svg(),
        "page": json.dumps(json.loads(graph.drawing.splitlines()[0])["time_name"]), "details": graph.details(),
    }  # fmt: skip


# what times are called


def test_a_time_that_the_host_took_on_an_accelerator_is_called_launch_time_wherever_it_is_shown() -> None:
    texts = texts_of(history_on("cuda:0"))
    assert "\tLaunch time:  4.000E-03s" in texts["operation"] and "\tLaunch time: " in texts["history"]
    assert texts["summary"].splitlines()[0].endswith("launch time")
    assert "4.000E-03s to launch)" in texts["module"] and ">launch time</th>" in texts["notebook"]
    assert "launch time: 1 ms – 4 ms" in texts["legend"]
    assert history_on("cuda:0").to_pandas()["timing"].tolist() == ["host", "launch", "launch"]
    assert texts["page"] == '"launch time"' and '["launch time","4 ms"]' in texts["details"]


@pytest.mark.parametrize(("device", "timing"), [("cuda:0", "device"), ("cpu", "host"), ("meta", "host")])
def test_a_time_that_was_measured_is_not_called_launch_time(device: str, timing: str) -> None:
    texts = texts_of(history_on(device, timing))
    assert [name for name, text in texts.items() if "launch" in text.lower()] == []
    assert "\tTime elapsed:  4.000E-03s" in texts["operation"] and '["time","4 ms"]' in texts["details"]


def test_a_saved_history_knows_how_its_times_were_taken(tmp_path: Path) -> None:
    for timing, is_launch in (("host", True), ("device", False)):
        history_on("cuda:0", timing).save(tmp_path / timing)
        assert tl.load(tmp_path / timing)["relu_1"].record.is_launch_timed is is_launch


# measuring


class HostEvent:
    """An event of a device that is never behind: when it was recorded, by the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.at = device, time.perf_counter()

    def synchronize(self) -> None:
        assert self.device.type == "cpu"

    def elapsed_time(self, end: HostEvent) -> float:
        return 1e3 * (end.at - self.at)


def test_the_events_of_each_operation_lie_inside_what_the_host_saw_of_it() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.5)), torch.ones(2, 4)
    recorder = Recorder(model)
    times = DeviceTimes(recorder, HostEvent)
    with times, recorder:
        y = model(x)
        y.requires_grad_().add_(y.shape[0])  # a getter and an idle call, which leave no row
        torch.cat([y, y]).backward(torch.ones(4, 4))
    seconds = times.read()
    seen = {node: recorder.row(node).nanoseconds / 1e9 for node in range(recorder.count)}
    assert {node for node, secs in seen.items() if secs} <= seconds.keys()
    assert all(0 < seconds[node] < secs for node, secs in seen.items() if secs)


def test_measured_times_take_the_place_of_the_hosts_only_where_an_accelerator_ran() -> None:
    history = tl.log_forward_pass(nn.Linear(2, 2), torch.ones(1, 2))
    recorder: Any = history.trace.recorder  # type: ignore[attr-defined]
    recorder.device_secs = {0: 1.0, 1: 1.0, 2: 1.0}
    assert [(op.record.timing, op.record.elapsed_secs < 1) for op in history] == [("host", True)] * 3


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator here")
@pytest.mark.parametrize("verb", ["log_forward_pass", "recording"])
def test_timing_by_a_device_that_is_not_there_is_refused(verb: str) -> None:
    with pytest.raises(
        BadArgument, match="timing='device' needs an accelerator, and torch finds none here; on the CPU"
    ):
        if verb == "recording":
            with tl.recording(timing="device"):
                pass
        else:
            tl.log_forward_pass(nn.ReLU(), torch.ones(1), timing="device")


@pytest.mark.parametrize(
    ("options", "words"),
    [({"timing": "gpu"}, "timing='gpu': 'host' reads"), ({"timing": "device", "structure": False}, "needs the oper")],
)
def test_a_timing_that_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadArgument, match=words):
        tl.log_forward_pass(nn.ReLU(), torch.ones(1), **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_events_measure_what_the_gpu_did_and_the_host_only_its_launch() -> None:
    x = torch.rand(8192, 8192, device="cuda")
    model = nn.Sequential(*[nn.Linear(8192, 8192, device="cuda") for _ in range(4)])
    model(x)
    torch.cuda.synchronize()
    launched = tl.log_forward_pass(model, x)
    torch.cuda.synchronize()
    measured = tl.log_forward_pass(model, x, timing="device")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    model(x)
    end.record()
    torch.cuda.synchronize()
    whole = begin.elapsed_time(end) / 1e3
    linears = [[op.record for op in history if op.record.name == "linear"] for history in (launched, measured)]
    assert [op.timing for op in linears[1]] == ["device"] * 4 and all(op.is_launch_timed for op in linears[0])
    assert sum(op.elapsed_secs for op in linears[1]) == pytest.approx(whole, rel=0.3)
    assert linears[0][0].elapsed_secs < linears[1][0].elapsed_secs / 2
    assert "Time elapsed" in str(measured["linear_1"]) and "Launch time" in str(launched["linear_1"])
    assert measured.info.elapsed_secs >= 0.7 * whole  # the pass is waited for once, at its end

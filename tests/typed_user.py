"""A user's program for type checkers: every public verb with what it returns. Checked strictly by mypy and pyright."""

# pyright: strict

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import assert_type

import torch
from torch import nn

import torcheer as tl
from torcheer import autograd
from torcheer.archive import Archive
from torcheer.capture.proof.replay import Validation
from torcheer.drawing import Drawing
from torcheer.extraction.extracted_tensors import ExtractedTensors
from torcheer.extraction.extraction_estimate import Estimate
from torcheer.extraction.extraction_reader import ExtractedLayer, Extraction
from torcheer.history.module_views import ModuleView
from torcheer.history.op_views import LayerView, OpList, OpView
from torcheer.host.live_view import Live
from torcheer.inspector import DataRecorder, ParallelHandler, open_watch
from torcheer.interpret.logit_lens import Lens
from torcheer.interpret.patching import PatchSweep
from torcheer.memory.memory_plan import Plan
from torcheer.modelfiles import ModelFile
from torcheer.monitor.model_watch import Watch
from torcheer.runlog.run_folder import RunFolder
from torcheer.runlog.watch_reader import Watched
from torcheer.studio.report.report_writer import Report
from torcheer.training import EpochsCompleted, Loader, Options, Session, Stage
from torcheer.wire.open_viewer import Viewer


def capture(model: nn.Module, x: torch.Tensor) -> None:
    history = tl.log_forward_pass(model, x, layers_to_save=tl.Save(["0", lambda layer: layer.flops > 10], device="cpu"))
    assert_type(history, tl.ModelHistory)
    assert_type(history["relu_1"], OpView | LayerView)
    assert_type(history[3], OpView)
    assert_type(history[2:5], OpList)
    assert_type(history.find("relu_*"), OpList)
    assert_type(history[0].shape, tuple[int, ...])
    assert_type(history[0].name, str)
    assert_type(history[0].elapsed_secs, float)
    assert_type(history["relu_1"].shape, tuple[int, ...])
    assert_type(history["relu_1"].flops, int | None)
    assert_type(history["relu_1"].name, str)
    assert_type(history.modules["0"], ModuleView)
    assert_type(history.layer_labels, list[str])
    assert_type(history.draw("model.svg"), Drawing)
    history.save("folder")
    print(history.to_pandas(), history.summary(), history.compare(history))
    with tl.recording(model) as recorded:
        model(x)
    assert_type(recorded, tl.ModelHistory)
    assert_type(tl.validate(model, x), Validation)
    assert_type(tl.draw(model, x, path="model.svg", style=tl.Style()), Drawing)
    double: Callable[[torch.Tensor], torch.Tensor] = lambda output: output * 2  # noqa: E731
    tl.log_forward_pass(model, x, edits={"relu_1": tl.edits.zero(), "0": double})


def look(model: nn.Module, history: tl.ModelHistory) -> None:
    assert_type(tl.show(history, browser=False), Viewer)
    assert_type(tl.report(history, "report.html"), Report)
    with tl.live(model, browser=False) as view:
        assert_type(view, Live)
        view.log(loss=1.0, image=tl.Image(torch.rand(3, 8, 8)), text=tl.Text("hello"))
    with tl.watch(model, every=20, to="watched") as watch:
        assert_type(watch, Watch)
    assert_type(open_watch("watched"), Watched)
    print([alert.what for alert in watch.alerts])


def features(model: nn.Module, data: torch.Tensor) -> None:
    stored = tl.extract(model, data, layers=["0"], to="layers", batch_size=10)
    assert_type(stored, Extraction)
    assert_type(stored["0"], ExtractedLayer)
    assert_type(tl.extract(model, data, layers="0", to=None), ExtractedTensors)
    assert_type(tl.extract(model, data, layers="0", to=Path("layers"), dry_run=True), Estimate)


def understand(model: nn.Module, tokens: torch.Tensor, metric: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert_type(tl.lens(model, tokens), Lens)
    assert_type(tl.patch_sweep(model, tokens, tokens, metric=metric), PatchSweep)
    assert_type(tl.plan(model, tokens, optimizer="AdamW"), Plan)
    with autograd.record():
        loss = model(tokens).square().mean()
        autograd.backward(loss, show=True)
    print(autograd.explain(loss))


def train(model: nn.Module, data: torch.utils.data.Dataset[torch.Tensor]) -> None:
    session = Session(
        models={"net": model},
        optimizers={"adam": torch.optim.Adam(model.parameters(), 1e-3)},
        loaders={"train": Loader(data, batch_size=10)},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), stop=EpochsCompleted(3))],
        options=Options(deterministic=True),
        to="run",
    )
    for event in session.run(progress=False):
        print(event)


def read(path: str) -> str:
    opened = tl.load(path)
    assert_type(opened, tl.ModelHistory | Archive | Extraction | Watched | RunFolder | ModelFile)
    return str(opened["relu_1"]) if isinstance(opened, tl.ModelHistory) else repr(opened)


def inspect(model: nn.Module) -> None:
    handler = ParallelHandler(callback_onrun=print)
    recorder = DataRecorder(shape=(64, 64), fps=10.0)
    print(handler, recorder, model)

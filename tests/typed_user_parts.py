"""A user's program for type checkers, continued from typed_user.py: the public names of the parts, room by room."""

# pyright: strict

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import torch
from torch import nn

import torcheer as tl
from torcheer import archive, autograd, drawing, extraction, inspector, integrations, modelfiles, studio, training
from torcheer.extraction.extraction_reader import Extraction
from torcheer.training.control import Control


def session_parts(net: nn.Module, data: Any) -> training.Session:
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    batch = training.Input("train", ("x", "y"))
    return training.Session(
        models={"net": net},
        optimizers={"adam": adam},
        loaders={"train": training.Loader(data, batch_size=8)},
        losses={"loss": training.Measure(nn.MSELoss(), ("y_hat", "y"))},
        processors={"forward": training.Processor((training.Node("net", ("x",), ("y_hat",), "adam"),))},
        graphs={"graph": training.Graph(("forward",), ("batch",), {"forward": ("batch",)})},
        pipelines={"fit": training.Pipeline("graph", (batch,), (training.Term("loss", "forward", "loss"),))},
        debug_pipelines={"look": training.DebugPipeline("graph", (batch,), interval=5)},
        schedules={"adam": training.Schedule(torch.optim.lr_scheduler.ConstantLR(adam))},
        clips=[training.Clip("net", norm=1.0)],
        stages=[training.Stage(("fit",), stop=training.EarlyStopping("loss", max_epochs=9))],
        options=training.Options(),
    )


def finders(session: training.Session) -> None:
    print(training.find_learning_rate(session, steps=20), training.find_batch_size(session, most=64))
    print(training.overfit_one_batch(session, steps=10), training.EpochsCompleted(3))
    with Control(Path("run"), title="mine") as control:
        print(control)


def samples(view: Any) -> None:
    view.log(sound=tl.Audio(torch.zeros(8_000), rate=8_000), rows=tl.TableOf({"a": [1]}))
    view.log(matrix=tl.Confusion([[3, 1], [0, 4]], names=["cat", "dog"]))
    print(tl.Edit(tl.edits.zero(), positions=3))
    assert_type(tl.__version__, str)
    try:
        tl.load("nowhere")
    except tl.errors.TorcheerError as error:
        print(error)


def other_loops(model: nn.Module, x: torch.Tensor, session: training.Session) -> None:
    run = integrations.OutsideRun("runs/first", made_by="my loop", config={"lr": 0.1})
    print(run)
    integrations.tensorboard.SummaryWriter("runs/second").close()
    integrations.wandb.finish()
    print(integrations.lightning.TorcheerLogger, integrations.transformers.TorcheerCallback)
    print(integrations.accelerate.TorcheerTracker, integrations.captum.attribute, tl.integrations.captum.attribute)
    assert_type(integrations.attribute(model, x, 0), tl.ModelHistory)
    assert_type(integrations.export_model(model, "net.onnx", x), Path)
    assert_type(integrations.export_model(session, "net.safetensors"), Path)
    assert_type(integrations.export_run("run", "tensorboard", "events"), integrations.ExportedRun)


def watching(model: nn.Module, x: torch.Tensor) -> None:
    settings = inspector.Every(steps=20), inspector.Transport(policy="latest")
    print(settings, inspector.ProcessInfoData, inspector.ParrallelHandler)
    layers = inspector.discover(model, x)
    inspector.save_layers(layers, "layers.txt")
    print(inspector.load_layers("layers.txt", model), inspector.find_layers(model, ["0"]))
    with tl.watch(model, to="watched") as watch:
        alerts: list[inspector.Alert] = list(watch.alerts)
        print(alerts)


def networks() -> None:
    net = studio.Network("Associator")
    view, state = studio.NetView(net), studio.State()
    print(view, state, studio.Simulation("mine", print, net=net), studio.Layer, studio.Projection)
    for name, table in studio.logs("run").items():
        assert_type(name, str)
        assert_type(table, studio.Table)


def readable_autograd(x: torch.Tensor) -> None:
    autograd.set_seed(3)
    with autograd.no_grad():
        assert_type(autograd.from_numpy([1.0]), autograd.tracer)
    assert_type(autograd.jacobian(torch.tanh, x), torch.Tensor)
    assert_type(autograd.hessian(torch.sum, x), torch.Tensor)
    assert_type(autograd.jvp(torch.tanh, x, x), tuple[torch.Tensor, torch.Tensor])
    assert_type(autograd.load_from_torch("weights.pt"), list[torch.Tensor])
    print(autograd.Sequential(autograd.nn.Linear(3, 2)), autograd.grad)
    print(autograd.gradcheck(torch.tanh, x), autograd.rule("tanh"), autograd.composite("gelu"))
    print(autograd.Explanation, autograd.Operator, autograd.Shape, autograd.Tape)
    print(autograd.autograd_methods, autograd.base, autograd.composites, autograd.init)


def files(history: tl.ModelHistory) -> None:
    with archive.Writer("folder") as writer:
        print(writer, archive.Entry)
    archive.save_history(history, "saved")
    assert_type(archive.export("folder", "folder.safetensors"), Path)
    assert_type(archive.import_from("folder.safetensors", "back"), Path)
    print(archive.repair("folder"))
    assert_type(extraction.open_extraction("layers"), Extraction)
    assert_type(drawing.draw_history(history, "model.svg"), drawing.Drawing)
    assert_type(drawing.draw_text(history), str)
    assert_type(modelfiles.is_model_file("net.onnx"), bool)
    assert_type(modelfiles.open_model_file("net.onnx"), modelfiles.ModelFile)
    print(modelfiles.ENDINGS, modelfiles.FileTensor)

"""A user's program for type checkers, continued: other people's loops and trackers, and what a run leaves behind."""

# pyright: strict

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import torch
from torch import nn

import torcheer as tl
import torcheer.integrations.wandb as wandb
from torcheer.errors import BadArgument
from torcheer.integrations import OutsideRun, export_run
from torcheer.integrations.accelerate import TorcheerTracker
from torcheer.integrations.hub_folder import hub_model
from torcheer.integrations.lightning import TorcheerCallback, TorcheerLogger
from torcheer.integrations.tensorboard import SummaryWriter
from torcheer.integrations.transformers import TorcheerCallback as HfCallback
from torcheer.mcp_server.run_tools import RunTools
from torcheer.studio import Table


def wandb_script(net: nn.Module) -> None:
    run = wandb.init(project="a", config={"lr": 0.1}, tags=["x"])
    assert_type(run, wandb.Run)
    assert_type(run.name, str)
    assert_type(run.tags, tuple[str, ...])
    assert_type(run.step, int)
    assert_type(run.dir, str)
    wandb.config.lr = 0.2
    print(wandb.config["lr"], wandb.config.get("lr"), wandb.summary["a"])
    wandb.log({"loss": 1.0, "img": wandb.Image(np.zeros((3, 3)))}, step=3)
    run.log({"t": wandb.Table(columns=["a"], data=[[1]])}, commit=False)
    wandb.watch(net, log="all", log_freq=10)
    artifact = wandb.Artifact("net", type="model")
    artifact.add_file("a")
    assert_type(run.log_artifact(artifact), wandb.Artifact)
    assert_type(wandb.save("x"), list[str])
    assert_type(wandb.use_artifact("net:latest").download(), str)
    wandb.alert(title="a", text="b", level=wandb.AlertLevel.WARN)
    if wandb.run is not None:
        print(wandb.run.id)
    try:
        wandb.log({"a": 1})
    except wandb.Error as error:
        print(error)
    wandb.finish()


def board(net: nn.Module) -> None:
    with SummaryWriter("a") as writer:
        assert_type(writer, SummaryWriter)
        writer.add_scalar("a", 1.0, 3)
        writer.add_video("v", torch.rand(1, 2, 3, 4, 4), 3)
        writer.add_graph(net, torch.rand(1, 3))
        assert_type(writer.log_dir, str)


def loop(net: nn.Module) -> None:
    with OutsideRun("a", made_by="me", stop_on="nan_inf") as run:
        watch = run.watch(net, every=10)
        assert_type(run.should_stop, bool)
        print([alert.what for alert in run.alerts], watch.steps)
    exported = export_run("a", "mlflow", Path("b"))
    assert_type(exported.numbers, int)
    callbacks = [TorcheerCallback("a", every=3), HfCallback("b"), TorcheerTracker("c"), TorcheerLogger("d")]
    print(callbacks, hub_model("e"))


def reading(net: nn.Module, x: torch.Tensor) -> None:
    run = tl.load("a")
    if isinstance(run, tl.ModelHistory):
        return
    history = tl.log_forward_pass(net, x)
    for op in history:
        assert_type(op.label, str)
        print(op.shape, op.parents, op.modules, op.flops)
    history.add_variable("mask", {"relu_1": torch.ones(3)})
    assert_type(history["relu_1"].variables, dict[str, Any])
    from torcheer.runlog.run_folder import RunFolder

    if isinstance(run, RunFolder):
        for name, table in run.tables.items():
            assert_type(name, str)
            assert_type(table, Table)
            print(table.to_pandas(), table["loss"].tolist(), table.columns)
        for sample in run.samples("image"):
            print(sample.pixels, sample.caption, sample.step)
        print([alert.rule for alert in run.alerts], run.config)
    tools = RunTools(Path("runs"))
    print(tools.list_runs(), tools.values("a", "b"))
    try:
        tl.watch(net, every=0)
    except BadArgument:
        pass

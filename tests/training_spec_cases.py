"""Configs for the tests of what becomes of them, and the little code that they name."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from seams import Built, assemble, understand

from torcheer.config import Config, read
from torcheer.errors import BadConfig

CODE = '''
import torch
from torch import nn
from torch.utils.data import Dataset

built = []  # in which order, for those who ask


class Points(Dataset):
    """Points and a class of each, the same for the same seed."""

    def __init__(self, count=24, seed=0, kind="class"):
        built.append("Points")
        draw = torch.Generator().manual_seed(seed)
        self.x, self.kind = torch.rand(count, 4, generator=draw), kind

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        target = int(self.x[index].sum() > 2)
        return self.x[index], float(target) if self.kind == "number" else target


class Net(nn.Module):
    def __init__(self, width=8, outputs=2):
        super().__init__()
        built.append("Net")
        self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x):
        return [self.layers(x)]


class Broken(nn.Module):
    def __init__(self):
        raise RuntimeError("no weights today")


class Scale:
    """A preprocessor that learns the largest value."""

    fits = 0

    def fit(self, dataset):
        Scale.fits += 1
        self.largest = max(float(x.max()) for x, _ in dataset)

    def process(self, x):
        return x / self.largest

    def state_dict(self):
        return {"largest": self.largest}

    def load_state_dict(self, state):
        self.largest = state["largest"]


class Adapter:
    def __call__(self, frame):
        return {"net": {"x": frame["x"]}}


class AsTarget:
    """A transform that is given the session."""

    def __init__(self, session):
        self.models = list(session.models)

    def __call__(self, y_hat, y):
        return y_hat, y


def as_target(y_hat, y):
    return y_hat, y


def build_net(session, width):
    built.append(("build_net", sorted(session.datasets), sorted(session.models)))
    return Net(width)


def accuracy(y_hat, y):
    return (y_hat.argmax(-1) == y).float().mean()


def halve(name):
    return lambda gradient: gradient / 2
'''


def definition(group: str, name: str, **spec: Any) -> dict[str, Any]:
    """One definition; `class_` is the key `class`."""
    return {"group": group, "name": name, "spec": {key.rstrip("_"): value for key, value in spec.items()}}


def pipeline(loader: str, prefix: str = "") -> dict[str, Any]:
    return {
        "graph": "graph",
        "input_injector": [{"input_port": "in", "variable_names": ["x", "y"], "data_loader": loader}],
        "losses": [{"node_name": "processor", "loss_name": "loss", "loss_display_name": f"{prefix}loss"}],
        "metrics": [{"node_name": "processor", "metric_name": "accuracy", "display_name": f"{prefix}acc"}],
    }


WHOLE: dict[str, Any] = {
    "session_dir": "run",
    "device": "cpu",
    "initialize": {
        "definitions": [
            definition("datasets", "points", class_="toys.Points", kwargs={"count": 24}),
            definition("splits", "split", dataset_name="points", ratio=[0.75, 0.25]),
            definition("data_loaders", "training_loader", dataset="split.train", kwargs={"batch_size": 6}),
            definition("data_loaders", "validation_loader", dataset="split.val", kwargs={"batch_size": 6}),
            definition("models", "net", class_="toys.Net"),
            definition("optimizers", "sgd", class_="SGD", model="net", kwargs={"lr": 0.1}),
            definition("losses", "loss", class_="CrossEntropyLoss", inputs=["y_hat", "y"]),
            definition("metrics", "accuracy", class_="Accuracy", inputs=["y_hat", "y"]),
            definition(
                "batch_processors",
                "processor",
                neural_graph=[{"model_name": "net", "inputs": ["x"], "outputs": ["y_hat"], "optimizer_name": "sgd"}],
            ),
            definition(
                "batch_graphs", "graph", nodes=["processor"], input_ports=["in"], ingoing_edges={"processor": ["in"]}
            ),
        ],
        "pipelines": {"training": pipeline("training_loader"), "validation": pipeline("validation_loader", "val ")},
    },
    "train": {
        "stages": [
            {
                "training_pipelines": ["training"],
                "validation_pipelines": ["validation"],
                "stop_condition": {"class": "EpochsCompleted", "kwargs": {"num_epochs": 2}},
            }
        ]
    },
}
SMALL: dict[str, Any] = {
    "session_dir": "run",
    "initialize": {
        "definitions": [
            definition("datasets", "points", class_="toys.Points"),
            definition("models", "net", class_="toys.Net"),
            definition("optimizers", "adam", class_="Adam", model="net"),
        ]
    },
}

Change = Callable[[dict[str, Any]], object]


def spec_of(data: dict[str, Any], name: str) -> dict[str, Any]:
    """The spec of the definition with a name."""
    return next(one["spec"] for one in data["initialize"]["definitions"] if one["name"] == name)


def changed(data: dict[str, Any], *changes: Change) -> dict[str, Any]:
    """A copy with changes."""
    data = copy.deepcopy(data)
    for change in changes:
        change(data)
    return data


def put(name: str, **changes: Any) -> Change:
    """Change the spec of a definition; `class_` is the key `class`."""
    return lambda data: spec_of(data, name).update({key.rstrip("_"): value for key, value in changes.items()})


def add(*definitions: dict[str, Any]) -> Change:
    """Add definitions."""
    return lambda data: data["initialize"]["definitions"].extend(definitions)


def epochs(count: int) -> str:
    """The change on a command line that lets a session end after so many epochs, before or after it has begun."""
    condition = {"class": "torcheer.training.stop_conditions.EpochsCompleted", "args": [count]}
    return f"train.stages.0.stop_condition={json.dumps(condition)}"


class Project:
    """A working directory with code in it, where configs are written and read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "toys.py").write_text(CODE)

    def config(self, data: dict[str, Any], *changes: Change, name: str = "training.json") -> Config:
        Path(name).write_text(json.dumps(changed(data, *changes), indent=1))
        return read(name)

    def complaint(self, data: dict[str, Any], *changes: Change) -> str:
        """What is wrong with a config."""
        with pytest.raises(BadConfig) as caught:
            understand(self.config(data, *changes))
        return str(caught.value)


def built(project: Project, *changes: Change, data: dict[str, Any] = WHOLE) -> Built:
    """The session of a config, with what it was built from."""
    return assemble(understand(project.config(data, *changes)))

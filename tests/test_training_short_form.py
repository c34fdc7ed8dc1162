"""The short form of a config: the same session as the long form, and errors in its writer's own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from seams import assemble, begin, check, checked, reopen, understand
from torch import nn
from training_spec_cases import Project

from torcheer.config import override, read
from torcheer.errors import BadArgument, BadConfig
from torcheer.training import Loader, Options, Session

pytestmark = pytest.mark.usefixtures("one_thread", "project")

SHORT = """
session_dir: run
dataset: {class: toys.Points, count: 40}
split: [0.75, 0.25]
model: {class: toys.Net, width: 4}
optimizer: {class: SGD, lr: 0.1, momentum: 0.9, lr_scheduler: {class: StepLR, step_size: 1}}
loss: CrossEntropyLoss
metrics: [Accuracy, F1]
batch_size: 10
epochs: 2
"""
LONG = """
session_dir: run
batch_size: 10
initialize:
  definitions:
  - {group: datasets, name: dataset, spec: {class: toys.Points, kwargs: {count: 40}}}
  - {group: splits, name: split, spec: {ratio: [0.75, 0.25], dataset_name: dataset}}
  - {group: models, name: model, spec: {class: toys.Net, kwargs: {width: 4}}}
  - group: optimizers
    name: optimizer
    spec:
      class: SGD
      model: model
      kwargs: {lr: 0.1, momentum: 0.9}
      lr_scheduler: {class: StepLR, kwargs: {step_size: 1}}
  - {group: losses, name: loss, spec: {class: CrossEntropyLoss}}
  - {group: metrics, name: accuracy, spec: {class: Accuracy}}
  - {group: metrics, name: f1, spec: {class: F1}}
train: {epochs: 2}
"""
TWO_MODELS = """
session_dir: run
dataset: toys.Points
columns: [x, y]
models: {body: {class: torch.nn.Linear, in_features: 4, out_features: 8}, head: {class: torch.nn.Linear, args: [8, 2]}}
optimizers:
  two: {class: SGD, lr: 0.1, model: head}
loss: {class: CrossEntropyLoss, inputs: [y_hat, y]}
pipelines:
  first:
    steps: [body(x) -> inner, head(inner) -> y_hat]
    trains: head
    losses: loss
  tested:
    steps: [body(x) -> inner, head(inner)]
    losses: [loss]
epochs: 1
"""


def config(text: str, name: str = "training.yaml") -> Any:
    Path(name).write_text(text)
    return read(name)


def described(text: str) -> dict[str, Any]:
    return {key: value for key, value in understand(config(text)).data.items() if key != "source"}


def test_the_short_form_is_the_long_form() -> None:
    assert described(SHORT) == described(LONG)


def test_a_session_of_the_short_form_has_the_columns_that_it_names() -> None:
    session = assemble(understand(config(SHORT))).session
    list(session.run())
    columns = ["loss", "accuracy", "f1"]
    assert set(session.rows[0][-1]) == {"epoch", *columns, *(f"val {column}" for column in columns)}
    assert [len(session.rows[0]), len(session.feeds["training_loader"].loader.dataset)] == [2, 30]


def test_groups_with_names_may_be_mixed_with_the_long_form() -> None:
    text = LONG.replace("  - {group: datasets, name: dataset, spec: {class: toys.Points, kwargs: {count: 40}}}\n", "")
    with_names = text + "datasets: {dataset: {class: toys.Points, kwargs: {count: 40}}}\n"
    assert check(config(with_names)) == []


def test_what_check_prints_as_the_long_form_is_the_same_session() -> None:
    long_form = checked(config(TWO_MODELS)).long_form
    again = checked(config(long_form, "long.json"))
    assert again.problems == [] and again.long_form == long_form


def test_a_pipeline_trains_the_models_that_it_names_and_the_others_validate() -> None:
    session = assemble(understand(config(TWO_MODELS))).session
    body, head = (session.models[name].weight.detach().clone() for name in ("body", "head"))
    list(session.run())
    assert torch.equal(session.models["body"].weight, body) and not torch.equal(session.models["head"].weight, head)
    assert set(session.rows[0][0]) == {"epoch", "loss", "val loss"}


def test_named_columns_but_the_last_are_the_models(project: Project) -> None:
    (project.folder / "pairs.py").write_text(
        "import torch\n"
        "def Pairs():\n    return torch.utils.data.TensorDataset(torch.rand(8, 2), torch.rand(8, 3), torch.rand(8))\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, left, right):\n        return super().forward(torch.cat([left, right], 1))\n"
    )
    text = (
        "session_dir: run\ndataset: pairs.Pairs\ncolumns: [left, right, y]\noptimizer: SGD\nepochs: 1\nloss: MSELoss\n"
    )
    session = assemble(understand(config(text + "model: {class: pairs.Net, args: [5, 1]}\n"))).session
    list(session.run())  # the prediction of 8×1 is compared with a target of 8: no broadcasting
    assert session.rows[0][0]["loss"] < 2


ERRORS = {
    "dataset: {class: toys.Points, cuont: 3}": "training.yaml:3: dataset.cuont = 3: Points has no argument 'cuont'",
    "dataset: 3": "training.yaml:3: dataset = 3: this is a number, and a mapping is needed here",
    "model: toys.Nut": "training.yaml:5: model = 'toys.Nut': toys has no 'Nut'. Did you mean 'Net'?",
    "optimizer: {class: SGD, model: net}": "optimizer.model = 'net': there is no 'net' among the models",
    "optimizer: {class: SGD, lr: 1.0, kwargs: {lr: 2.0}}": "optimizer.lr = 1.0: 'lr' is also given in kwargs",
    "optimizer: {lr: 0.1}": "training.yaml:6: optimizer.class: a definition of optimizers needs the key 'class'",
    "split: [0.5, 0.2]": "training.yaml:4: split: the shares of a split add up to 1, and these to 0.7",
    "metrics: [Acuracy]": "metrics.0 = 'Acuracy': there is no metric 'Acuracy'",
    "metrics: [{kwargs: {}}]": "metrics.0: this names no class",
    "epochs: two": "epochs = 'two': this is a string, and a whole number of 1 or more is needed here.",
    "models: {other: toys.Net}": "'model' and 'models' are both given",
    "lr_scheduler: StepLR": "lr_scheduler = 'StepLR': the optimizer 'optimizer' has an lr_scheduler of its own",
    "stop_condition: {class: EpochsCompleted, num_epochs: 3}": "epochs = 2: every stage has a stop_condition",
    "stop_condition: {class: EarlyStopping, monitor: val los}": "stop_condition.monitor = 'val los'",
    "optimiser: SGD": "a training config has no key 'optimiser'. Did you mean 'optimizer'?",
    "pipelines: {a: {steps: [model x]}}": "pipelines.a.steps.0 = 'model x': a step is written as MODEL(COLUMN",
    "pipelines: {a: {steps: [modl(x)]}}": "pipelines.a.steps.0 = 'modl(x)': there is no 'modl' among the models",
    "pipelines: {a: {steps: [model(x)], trains: net}}": "pipelines.a.trains = 'net': there is no optimizer of a model",
    "pipelines: {a: {steps: [model(x)], losses: [los]}}": "pipelines.a.losses.0 = 'los': there is no 'los'",
    "pipelines: {a: {steps: [model(x)], data: {b: [x]}}}": "pipelines.a.data: this is a mapping, and the name of",
    "pipelines: {a: {steps: [model(z)], columns: [x, y]}}": "pipelines.a.steps.0 = 'model(z)': there is no 'z' for",
}


@pytest.mark.parametrize("line", ERRORS)
def test_an_error_names_the_key_as_it_was_written(line: str) -> None:
    key = line.partition(":")[0]
    lines = [line if other.startswith(f"{key}:") else other for other in SHORT.splitlines()]
    text = "\n".join(lines if line in lines else [*lines, line])
    said = "\n".join(check(config(text), imports=True))
    assert ERRORS[line] in said and (key != "stop_condition" or "filled in" not in said)


def test_a_config_that_defines_nothing_says_what_one_has() -> None:
    (problem,) = check(config("session_dir: run\nepochs: 3\n"))
    assert "a training config has a dataset, a model and an optimizer" in problem


def test_a_loss_between_several_models_is_asked_for_its_inputs() -> None:
    text = TWO_MODELS.replace(", inputs: [y_hat, y]", "")
    (problem,) = check(config(text))
    assert "loss.inputs: say as inputs which columns it takes in 'first'" in problem


def test_short_keys_change_a_session_that_is_there() -> None:
    begin(understand(config(SHORT)))
    session = reopen("run", changes=["optimizer.lr=0.5", "epochs=7", "model.width=4"]).session
    assert session.optimizers["optimizer"].param_groups[0]["initial_lr"] == 0.5
    assert session.stages[0].stop.num_epochs == 7
    with pytest.raises(BadConfig, match=r"spec.json \(overridden\): epochs = 'two': this is a string"):
        reopen("run", changes=["epochs=two"])


def test_epochs_are_the_most_that_early_stopping_waits() -> None:
    text = SHORT + "stop_condition: {class: EarlyStopping, monitor: val loss, patience: 3}\n"
    stop = assemble(understand(config(text))).session.stages[0].stop
    assert (stop.patience, stop.max_epochs) == (3, 2)


def test_a_long_session_is_changed_by_the_short_name_of_its_only_optimizer() -> None:
    long = LONG.replace("name: optimizer\n", "name: sgd\n")
    begin(understand(config(long)))
    session = reopen("run", changes=["optimizer.momentum=0.5"]).session
    assert session.optimizers["sgd"].param_groups[0]["momentum"] == 0.5


def test_a_config_over_a_session_changes_single_arguments() -> None:
    begin(understand(config(SHORT)))
    over = config("session_dir: run\nvalidation_pipelines: [validation]\ndataset: {count: 60}\n", "test.yaml")
    built = reopen("run", over)
    assert len(built.parts.datasets["dataset"]) == 60  # type: ignore[attr-defined]
    assert check(override(read("training.yaml"), [])) == []  # a training config stays one where its session exists


# Layers that are not trained, and weights of a file


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def frozen_session(freeze: Any, models: dict[str, nn.Module]) -> Session:
    data = torch.utils.data.TensorDataset(torch.rand(32, 4), torch.randint(0, 2, (32,)))
    optimizer = torch.optim.SGD([p for model in models.values() for p in model.parameters()], 0.5, weight_decay=0.1)
    return Session(
        models=models,
        optimizers={"sgd": optimizer},
        loaders={"train": Loader(data, batch_size=8), "val": Loader(data, batch_size=8)},
        losses={"loss": nn.CrossEntropyLoss()},
        options=Options(freeze=freeze),
    )


def test_frozen_layers_keep_their_weights_and_their_averages() -> None:
    model = Normed()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    list(frozen_session(["0", "1"], {"net": model}).run(progress=False))
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"3.weight", "3.bias"}


def test_what_cannot_be_frozen_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"freeze: .*'9'"):
        frozen_session(["9"], {"net": Normed()})
    with pytest.raises(BadArgument, match="freezes every parameter"):
        frozen_session("all", {"net": Normed()})


@pytest.mark.parametrize("name", ["pretrained.pt", "pretrained.safetensors"])
def test_weights_of_a_file_are_loaded_where_they_fit(name: str) -> None:
    other = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    state = {f"layers.{key}": value for key, value in other.state_dict().items()}
    if name.endswith("pt"):
        torch.save({"state_dict": state}, name)
    else:
        from safetensors.torch import save_file

        save_file(state, name)
    built = begin(understand(config(SHORT.replace("width: 4", f"width: 4, weights_file: {name}"))))
    model = built.session.models["model"]
    assert torch.equal(model.layers[0].weight.cpu(), other[0].weight)  # type: ignore[index,union-attr]
    (note,) = built.notes
    assert note.startswith(f"model: 2 of 4 tensors are those of {name}; as initialized: layers.2.weight (2×4; 3×4 in")
    Path(name).unlink()
    reopen("run")  # its checkpoint has the weights


def test_a_file_with_other_weights_is_refused() -> None:
    torch.save({"a": torch.ones(3)}, "other.pt")
    text = SHORT.replace("width: 4", "width: 4, weights_file: other.pt")
    with pytest.raises(BadConfig, match=r"model\.weights_file = 'other.pt'.*none of the 1 tensors of other.pt \(a\)"):
        assemble(understand(config(text)))

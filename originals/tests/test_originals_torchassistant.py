"""Projects as people wrote them for TorchAssistant, of our own making and small: init, train, evaluate, infer.

Their configs are used as they are; of their Python, `torchassistant` in import lines is written as
`torcheer_originals.torchassistant`.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from torcheer.cli import main
from torcheer.errors import ConfigWarning
from torcheer_originals.torchassistant.preprocessors import (
    ImagePreprocessor,
    TextPreprocessor,
    TrainablePreprocessor,
)


class Project:
    """A folder with a package `examples.NAME`, as theirs; commands run in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def write(self, name: str, text: str) -> None:
        path = self.folder / "examples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = dedent(text).replace("from torchassistant", "from torcheer_originals.torchassistant")
        path.write_text(lines)

    def config(self, name: str, data: dict[str, Any]) -> str:
        self.write(name, json.dumps({"session_dir": "pretrained", **data}, indent=1))
        return f"examples/{name}"

    def run(self, *arguments: str) -> str:
        """Run a command; return what it printed."""
        self.capsys.readouterr()
        assert main(list(arguments)) == 0, self.capsys.readouterr().err
        captured = self.capsys.readouterr()
        return captured.err + captured.out

    def train(self) -> None:
        self.run("train", "pretrained", "--plain", "--no-control")

    def spec(self) -> dict[str, dict[str, Any]]:
        """The definitions of the session, by name."""
        data = json.loads((self.folder / "pretrained" / "spec.json").read_text())
        return {each["name"]: each["spec"] for each in data["initialize"]["definitions"]}

    def rows(self, stage: int = 0) -> list[dict[str, str]]:
        return list(csv.DictReader((self.folder / f"pretrained/metrics/{stage}.csv").open()))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    yield Project(tmp_path, capsys)
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        del sys.modules[name]


def entry(group: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"group": group, "name": name, "spec": {key.rstrip("_"): value for key, value in spec.items()}}


def definitions(data: list[Any], computation: list[Any], **more: Any) -> dict[str, Any]:
    return {"initialize": {"definitions": {"data": data, "computation": computation, **more}}}


def over(*options: dict[str, Any]) -> dict[str, Any]:
    return {"replace_strategy": "override", "override_key": ["name"], "options": list(options)}


# Images: mnist and cifar

PICTURES = """
import numpy as np
import torch
from PIL import Image
from torch import nn


class Pictures:
    '''Images and a class of each, which nothing can be learned about: the loss soon stops falling.'''

    classes = [f"{number} - name" for number in range(10)]  # as torchvision's MNIST has them

    def __init__(self, root, train=True, download=False):
        self.count, self.first = (40, 0) if train else (16, 1000)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        draw = np.random.default_rng(self.first + index)
        return Image.fromarray(draw.integers(0, 255, SHAPE).astype("uint8")), int(draw.integers(10))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 10))
        self.layers(torch.zeros(1, CHANNELS, 8, 8))

    def forward(self, x):
        assert x.shape[1:] == (CHANNELS, 8, 8)
        return [self.layers(x)]


class InputConverter:
    def __call__(self, image_path):
        with Image.open(image_path) as image:
            return image.copy(), 11
"""


@pytest.mark.parametrize(("name", "shape", "channels"), [("mnist", (8, 8), 1), ("cifar", (8, 8, 3), 3)])
def test_a_project_of_images(project: Project, name: str, shape: tuple[int, ...], channels: int) -> None:
    project.write(f"{name}/__init__.py", f"SHAPE, CHANNELS = {shape}, {channels}\n{PICTURES}")
    picture = f"examples.{name}.Pictures"
    training = definitions(
        [
            entry("datasets", "train_ds", class_=picture, args=["data"], kwargs={"train": True, "download": True}),
            entry("datasets", "test_ds", class_=picture, args=["data"], kwargs={"train": False, "download": True}),
        ],
        [
            entry("models", "net", class_=f"examples.{name}.Net"),
            entry("optimizers", "optimizer", class_="Adam", kwargs={"lr": 0.02}, model="net"),
        ],
    )
    said = project.run("init", project.config(f"{name}/training.json", training))
    assert "EarlyStopping compares each epoch with the best" in said and "migration/torchassistant" in said
    project.train()
    names = ["epoch", "accuracy", "loss", "val accuracy", "val loss"]
    assert list(project.rows()[0]) == names and 3 <= len(project.rows()) < 100
    spec = project.spec()
    loaders = [f"autogenerated_data_loader_for_autogenerated_{name}" for name in ("train_ds", "test_ds")]
    assert [spec[loader]["kwargs"] for loader in loaders] == [{"batch_size": 32}] * 2
    assert spec["autogenerated_preprocessor_1"]["fit"] == "train_ds" and "default_collator" in spec

    pipelines = {"validation_pipelines": ["training", "validation"]}
    said = project.run("evaluate", project.config(f"{name}/evaluation.json", pipelines))
    assert all(f"{column} " in said for column in names[1:])

    from PIL import Image

    Image.new("L" if channels == 1 else "RGB", (8, 8), "white").save("picture.png")
    meta = [{"input_converter": {"class": f"examples.{name}.InputConverter"}}]
    inference = {"inference_pipeline": "validation", "inputs_meta": meta}
    said = project.run("infer", project.config(f"{name}/inference.json", inference), "picture.png")
    assert "Running inference on: ['picture.png']" in said and "y_hat:tensor([[" in said


# Texts: language_translation

TEXTS = """
import torch
from torch import nn
from torchassistant.collators import ColumnWiseCollator, no_transform, seqs_to_tensor
from torchassistant.utils import pad_sequences


class Lines:
    def __init__(self, path):
        self.pairs = [line.split("/") for line in open(path).read().splitlines()]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return tuple(self.pairs[index])


def training_collator(session):
    return ColumnWiseCollator([seqs_to_tensor, no_transform])


def inference_collator(session):
    return ColumnWiseCollator([seqs_to_tensor])


class Encoder(nn.Module):
    def __init__(self, words, size):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)

    def forward(self, x, hidden):
        return self.gru(self.embedding(x), hidden)


class Decoder(nn.Module):
    def __init__(self, words, size):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(words, size), nn.GRU(size, size, batch_first=True)
        self.out = nn.Linear(size, words)

    def forward(self, x, hidden):
        output, hidden = self.gru(self.embedding(x), hidden)
        return self.out(output), hidden

    def run_inference(self, x, hidden):
        tokens = []
        for _ in range(4):
            scores, hidden = self.forward(x, hidden)
            x = scores.argmax(dim=2)
            tokens.append(x.item())
        return [tokens]


def build_encoder(session, *args, **kwargs):
    return Encoder(session.preprocessors["autogenerated_preprocessor_1"].num_words, kwargs["size"])


def build_decoder(session, *args, **kwargs):
    return Decoder(session.preprocessors["autogenerated_preprocessor_2"].num_words, kwargs["size"])


class InputAdapter:
    def __init__(self, size, num_classes):
        self.size, self.num_classes = size, num_classes

    def __call__(self, batch):
        targets = batch["input_2"]
        padded, _ = pad_sequences(targets, targets[0][-1])
        hidden = torch.zeros(1, len(batch["input_1"]), self.size)
        shifted = torch.LongTensor(padded)[:, :-1]
        return {"encoder": {"x": batch["input_1"], "h": hidden}, "decoder": {"y_shifted": shifted}}


def build_input_adapter(session, *args, **kwargs):
    kwargs["num_classes"] = session.preprocessors["autogenerated_preprocessor_2"].num_classes
    return InputAdapter(**kwargs)


class OutputAdapter:
    def __call__(self, batch):
        batch["input_2"] = [tokens[1:] for tokens in batch["input_2"]]
        return batch


class OneSample:
    def __init__(self, size):
        self.size = size

    def __call__(self, batch):
        start = torch.LongTensor([[0]])
        return {"encoder": {"x": batch["input_1"], "h": torch.zeros(1, 1, self.size)}, "decoder": {"start": start}}


class Unchanged:
    def __call__(self, batch):
        return batch


class InputConverter:
    def __call__(self, text):
        return text.lower()


class Words:
    def __init__(self, session, *args, **kwargs):
        self.words = session.preprocessors["autogenerated_preprocessor_2"]

    def __call__(self, predictions):
        words = self.words.index2word
        return {name: " ".join(words[token] for token in tokens) for name, tokens in predictions.items()}
"""
LINES = [
    "va/go",
    "cours/run",
    "au feu/fire",
    "a l aide/help me",
    "saute/jump",
    "stop/stop",
    "attends/wait here",
    "oui/yes",
]
CODE = "examples.translation.code"
TRANSLATION = definitions(
    [
        entry("datasets", "lines", class_=f"{CODE}.Lines", kwargs={"path": "lines.txt"}),
        entry("collators", "my_collator", factory_fn=f"{CODE}.training_collator"),
    ],
    [
        entry("models", "encoder", factory_fn=f"{CODE}.build_encoder", args=[], kwargs={"size": 8}),
        entry("models", "decoder", factory_fn=f"{CODE}.build_decoder", args=[], kwargs={"size": 8}),
        entry("optimizers", "encoder_sgd", class_="SGD", kwargs={"lr": 5.0}, model="encoder"),
        entry("optimizers", "decoder_sgd", class_="SGD", kwargs={"lr": 5.0}, model="decoder"),
        entry(
            "losses",
            "cross_entropy",
            class_="torchassistant.loss_functions.MaskedCrossEntropy",
            inputs=["y_hat", "input_2"],
            transform="torchassistant.transforms.pad_targets",
        ),
        entry(
            "batch_processors",
            "translator",
            input_adapter={"factory_fn": f"{CODE}.build_input_adapter", "kwargs": {"size": 8}},
            neural_graph=[
                {
                    "model_name": "encoder",
                    "inputs": ["x", "h"],
                    "outputs": ["outputs", "h_e"],
                    "optimizer_name": "encoder_sgd",
                },
                {
                    "model_name": "decoder",
                    "inputs": ["y_shifted", "h_e"],
                    "outputs": ["y_hat", "h_d"],
                    "optimizer_name": "decoder_sgd",
                },
            ],
            output_adapter={"class": f"{CODE}.OutputAdapter"},
        ),
    ],
)


def evaluated(loader: str, prefix: str) -> dict[str, Any]:
    loader = f"autogenerated_data_loader_for_autogenerated_autogenerated_split.{loader}"
    measured = {"node_name": "translator"}
    return {
        "input_injector": [{"data_loader": loader}],
        "losses": [{**measured, "loss_name": "cross_entropy", "loss_display_name": f"{prefix}ed_loss"}],
        "metrics": [{**measured, "metric_name": "WER", "display_name": f"{prefix}WER"}],
    }


def test_a_project_of_texts(project: Project) -> None:
    project.write("translation/code.py", TEXTS)
    Path("lines.txt").write_text("\n".join(LINES))
    said = project.run("init", project.config("translation/training.json", TRANSLATION))
    assert "TextPreprocessor numbers each word once" in said
    spec = project.spec()
    assert spec["autogenerated_split"] == {"dataset_name": "lines", "ratio": [0.5, 0.25, 0.25]}
    assert spec["autogenerated_preprocessor_2"]["fit"] == "autogenerated_split.train"
    project.train()
    assert list(project.rows()[0]) == ["epoch", "cer", "loss", "val cer", "val loss"]

    words = entry(
        "metrics",
        "WER",
        class_="WordErrorRate",
        inputs=["y_hat", "input_2"],
        transform="torchassistant.transforms.DecodeText",
    )
    evaluation = {
        "initialize": {
            "definitions": {"computation": over(words)},
            "pipelines": {"train": evaluated("train", ""), "evaluate": evaluated("val", "val ")},
        },
        "validation_pipelines": ["train", "evaluate"],
    }
    said = project.run("evaluate", project.config("translation/evaluation.json", evaluation))
    assert all(f"{name} " in said for name in ("WER", "ed_loss", "val WER", "val ed_loss"))


def test_inference_of_texts_takes_the_first_pipeline_and_ignores_an_unknown_key(project: Project) -> None:
    project.write("translation/code.py", TEXTS)
    Path("lines.txt").write_text("\n".join(LINES))
    project.run("init", project.config("translation/training.json", TRANSLATION))
    decoder = {"model_name": "decoder", "inputs": ["start", "h_e"], "outputs": ["y_hat"]}
    translator = {
        "input_adapter": {"class": f"{CODE}.OneSample"},  # a class over a function, whose arguments stay
        "neural_graph": {"replace_strategy": "override", "override_key": ["model_name"], "options": [decoder]},
        "output_adapter": {"class": f"{CODE}.Unchanged"},
    }
    inference = {
        "input_adapter": {"class": f"{CODE}.InputAdapter"},
        "initialize": {
            "definitions": {
                "data": over({"name": "my_collator", "spec": {"factory_fn": f"{CODE}.inference_collator"}}),
                "computation": over({"name": "translator", "spec": translator}),
            }
        },
        "inputs_meta": [{"input_port": "default_port", "input_converter": {"class": f"{CODE}.InputConverter"}}],
        "results": ["y_hat"],
        "post_processor": {"class": f"{CODE}.Words"},
    }
    path = project.config("translation/inference.json", inference)
    with pytest.warns(ConfigWarning, match="no key 'input_adapter', and it is ignored"):
        said = project.run("infer", path, "Au feu", "Saute")
    assert said.count("y_hat:") == 2, "their adapters expect one sample"


# Self-training: htr_self_training

WORDS = """
import os
import torch
from torch import nn
from torchassistant.collators import one_hot_tensor, pad_sequences
from torchassistant.loss_functions import MaskedCrossEntropy
from torchassistant.preprocessors import ValuePreprocessor


class Letters(ValuePreprocessor):
    def __init__(self, charset):
        self.letters = ["<s>", "<e>", *charset]

    def process(self, text):
        return [0, *(self.letters.index(letter) for letter in text), 1]

    def decode(self, tokens):
        return "".join(self.letters[token] for token in tokens if token > 1)


class Decode:
    def __init__(self, session):
        self.letters = session.preprocessors["tokenize"]

    def __call__(self, y_hat, y):
        decode = self.letters.decode
        return [decode(row) for row in y_hat.argmax(dim=2).tolist()], [decode(row) for row in y]


class Drawn:
    '''Pictures of words; `re_build` reads the list of them again.'''

    def __init__(self, index_path):
        self.index_path = index_path
        self.re_build()

    def re_build(self):
        with open(self.index_path) as file:
            self.index = [line.split(",") for line in file.read().splitlines()]

    def __len__(self):
        return len(self.index)

    def picture(self, index):
        name, level, text = self.index[index]
        return name, int(level), torch.full((4,), len(name) / 10), text.strip()


class Labeled(Drawn):
    def __getitem__(self, index):
        return self.picture(index)[2:]


class Unlabeled(Drawn):
    def __getitem__(self, index):
        return self.picture(index)[:3]


class Encoder(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.layer = size, nn.Linear(4, size)

    def forward(self, x):
        return self.layer(x), torch.zeros(1)


class Decoder(nn.Module):
    def __init__(self, size, classes):
        super().__init__()
        self.layer = nn.Linear(size + classes, classes)
        self.classes = classes

    def forward(self, encodings, shifted=None):
        if shifted is None:
            return self.run_inference(encodings)
        return [self.layer(torch.cat([encodings[:, None].expand(-1, shifted.shape[1], -1), shifted], dim=2))]

    def run_inference(self, encodings):
        shifted = torch.zeros(len(encodings), 3, self.classes)
        return [self.layer(torch.cat([encodings[:, None].expand(-1, 3, -1), shifted], dim=2))]


def build_encoder(session, *args, **kwargs):
    return Encoder(*args, **kwargs)


def build_decoder(session):
    return Decoder(next(iter(session.models.values())).size, len(session.preprocessors["tokenize"].letters))


class Adapter:
    def __init__(self, classes, aliases=("",)):
        self.classes, self.aliases = classes, aliases

    def __call__(self, batch):
        padded, _ = pad_sequences(batch["input_2"], batch["input_2"][0][-1])
        shifted, images = one_hot_tensor(padded, self.classes)[:, :-1], torch.stack(batch["input_1"])
        frames = {}
        for alias in self.aliases:
            frames[f"encoder{alias}"] = {f"x{alias}": images}
            frames[f"decoder{alias}"] = {"tf_seq": shifted}
        return frames


class PredictorAdapter:
    def __call__(self, batch):
        return {"encoder": {"x": torch.stack(batch["input_3"])}, "decoder": {"tf_seq": None}}


def build_adapter(session, **kwargs):
    return Adapter(len(session.preprocessors["tokenize"].letters), **kwargs)


class Shifted:
    def __call__(self, frame):
        frame["y"] = [tokens[1:] for tokens in frame["input_2"]]
        return frame


class Save:
    def __init__(self, letters, path):
        self.letters, self.path = letters, path

    def __call__(self, frame):
        with open(self.path, "a") as file:
            for name, level, row in zip(frame["input_1"], frame["input_2"], frame["y_hat"].argmax(dim=2).tolist()):
                file.write(f"{name}, {level}, {self.letters.decode(row) or 'a'}\\n")
        return frame


def build_save(session, **kwargs):
    return Save(session.preprocessors["tokenize"], **kwargs)


class Consistency:
    def __init__(self):
        self.loss = MaskedCrossEntropy(reduction="sum", label_smoothing=0.4)

    def __call__(self, weak, strong, y, mask):
        return self.loss(weak, y, mask) + self.loss(strong, y, mask)


def pad_both(*args):
    *scores, y = args
    padded, mask = pad_sequences(y, y[0][-1])
    return [*scores, torch.LongTensor(padded), mask]


class Erase:
    def __init__(self, path):
        self.path = path

    def __call__(self, session, epoch):
        open(self.path, "w").close()


class Rebuild:
    def __call__(self, session, epoch):
        session.datasets["pseudo_labeled"].dataset.re_build()


class Converter:
    def __call__(self, name):
        return torch.full((4,), len(name) / 10), ""


class Text:
    def __init__(self, session, *args, **kwargs):
        self.letters = session.preprocessors["tokenize"]

    def __call__(self, predictions):
        decode = self.letters.decode
        return {name: decode(scores.squeeze(0).argmax(dim=1).tolist()) for name, scores in predictions.items()}


class Enough:
    '''A stop condition as theirs: called with the epochs of the stage and their columns.'''

    def __init__(self, loss):
        self.loss = loss

    def __call__(self, epoch, history):
        return epoch >= 3 or history[-1]["synth loss"] < self.loss
"""
HTR = "examples.htr.code"


def node(model: str, inputs: list[str], alias: str = "") -> dict[str, Any]:
    outputs = {"encoder": ["encodings", "h_e"], "decoder": ["y_hat", "h_d"]}[model]
    named = {"alias": f"{model}{alias}"} if alias else {}
    inputs = [f"{name}{alias}" if name != "tf_seq" else name for name in inputs]
    shown = [f"{name}{alias}" for name in outputs]
    return {"model_name": model, "inputs": inputs, "outputs": shown, "optimizer_name": f"{model}_adam", **named}


def processor(name: str, nodes: list[Any], adapter: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """A processor and the graph around it."""
    ports = {"input_ports": ["default_port"], "ingoing_edges": {name: ["default_port"]}}
    return [
        entry("batch_processors", name, input_adapter=adapter, neural_graph=nodes, output_adapter=after),
        entry("batch_graphs", f"{name}_graph", nodes=[name], **ports),
    ]


def piped(graph: str, loader: str, loss: str = "", shown: str = "", metric: str = "") -> dict[str, Any]:
    losses = [{"node_name": graph, "loss_name": loss, "loss_display_name": shown}] if loss else []
    metrics = [{"node_name": graph, "metric_name": "cer", "display_name": metric}] if metric else []
    shared = {"graph": f"{graph}_graph", "input_injector": [{"data_loader": loader}]}
    return {**shared, "losses": losses, "metrics": metrics} if loss else shared


def self_training() -> dict[str, Any]:
    teacher = [node("encoder", ["x"]), node("decoder", ["encodings", "tf_seq"])]
    twice = [
        each
        for alias in ("_weak", "_strong")
        for each in (node("encoder", ["x"], alias), node("decoder", ["encodings", "tf_seq"], alias))
    ]
    made, shifted = {"factory_fn": f"{HTR}.build_adapter"}, {"class": f"{HTR}.Shifted"}
    pads = "torchassistant.transforms.pad_targets"
    sums = {"reduction": "sum", "label_smoothing": 0.4}
    pseudo, tokenized = "words/pseudo_labels.txt", ["", "tokenize"]
    epochs = {"class": "torchassistant.stop_conditions.EpochsCompleted", "kwargs": {"num_epochs": 2}}
    loaders = {"synthetic": "synth", "unlabeled": "unlabeled", "pseudo_labeled": "pseudo", "real": "real"}
    data = definitions(
        [
            entry("preprocessors", "tokenize", class_=f"{HTR}.Letters", kwargs={"charset": "abc"}),
            entry("datasets", "synthetic", class_=f"{HTR}.Labeled", args=["words/s.txt"], preprocessors=tokenized),
            entry("datasets", "unlabeled", class_=f"{HTR}.Unlabeled", args=["words/u.txt"]),
            entry("datasets", "pseudo_labeled", class_=f"{HTR}.Labeled", args=[pseudo], preprocessors=tokenized),
            entry("datasets", "real", class_=f"{HTR}.Labeled", args=["words/r.txt"], preprocessors=tokenized),
            entry("collators", "unpack", class_="torchassistant.collators.BatchDivide"),
            *(
                entry("data_loaders", loader, dataset=name, collator="unpack", kwargs={"batch_size": 2})
                for name, loader in loaders.items()
            ),
        ],
        [
            entry("models", "encoder", factory_fn=f"{HTR}.build_encoder", kwargs={"size": 6}),
            entry("models", "decoder", factory_fn=f"{HTR}.build_decoder"),
            entry("optimizers", "encoder_adam", class_="Adam", kwargs={"lr": 0.01}, model="encoder"),
            entry("optimizers", "decoder_adam", class_="Adam", kwargs={"lr": 0.01}, model="decoder"),
            entry("gradient_clippers", "clipper", model="encoder", clip_value=30),
            entry("losses", "cross_entropy", class_="torchassistant.loss_functions.MaskedCrossEntropy",
                  inputs=["y_hat", "y"], transform=pads, kwargs=sums),
            entry("losses", "consistency", class_=f"{HTR}.Consistency", inputs=["y_hat_weak", "y_hat_strong", "y"],
                  transform=f"{HTR}.pad_both"),
            entry("metrics", "cer", class_="CharErrorRate", inputs=["y_hat", "y"], transform=f"{HTR}.Decode"),
            *processor("teacher", teacher, made, shifted),
            *processor("predictor", [node("encoder", ["x"]), node("decoder", ["encodings"])],
                       {"class": f"{HTR}.PredictorAdapter"},
                       {"factory_fn": f"{HTR}.build_save", "kwargs": {"path": pseudo}}),
            *processor("student", twice, {**made, "kwargs": {"aliases": ["_weak", "_strong"]}}, shifted),
        ],
        callbacks=[
            entry("callbacks", "erase", class_=f"{HTR}.Erase", kwargs={"path": pseudo}),
            entry("callbacks", "rebuild", class_=f"{HTR}.Rebuild"),
        ],
    )  # fmt: skip
    data["initialize"]["pipelines"] = {
        "fit_synthetic": piped("teacher", "synth", "cross_entropy", "synth loss", "cer"),
        "predict": piped("predictor", "unlabeled"),
        "fit_pseudo": piped("student", "pseudo", "consistency", "consistency loss"),
        "evaluate_real": piped("teacher", "real", "cross_entropy", "real loss", "real cer"),
    }
    both = ["fit_synthetic", "evaluate_real"]
    enough = {"class": f"{HTR}.Enough", "kwargs": {"loss": 0.0}}
    data["train"] = {
        "stages": [
            {
                "training_pipelines": ["fit_synthetic"],
                "validation_pipelines": both,
                "eval_steps": {"fit_synthetic": 0.5, "evaluate_real": 1.0},
                "stop_condition": enough,
            },
            {
                "run_before_epoch": ["erase", "predict", "rebuild"],
                "training_pipelines": ["fit_pseudo"],
                "validation_pipelines": ["fit_pseudo", "evaluate_real"],
                "eval_steps": 0.1,
                "stop_condition": epochs,
            },
        ]
    }
    return data


def test_a_project_that_trains_itself(project: Project) -> None:
    project.write("htr/code.py", WORDS)
    Path("words").mkdir()
    for name, count in (("s", 6), ("u", 5), ("r", 3), ("pseudo_labels", 0)):
        lines = [f"{'p' * (number + 1)}, 200, {'abc'[number % 3] * 2}\n" for number in range(count)]
        Path(f"words/{name}.txt").write_text("".join(lines))
    project.run("init", project.config("htr/training.json", self_training()))
    project.train()
    assert [len(project.rows(stage)) for stage in (0, 1)] == [3, 2]
    assert list(project.rows(1)[0]) == ["epoch", "consistency loss", "real cer", "real loss"]
    assert len(Path("words/pseudo_labels.txt").read_text().splitlines()) == 5
    steps = sorted(int(path.name) for path in Path("pretrained/checkpoints").iterdir())
    assert steps[-1] == 3 * 3 + 2 * 3, "an epoch of the second stage has the batches of the labels before it"

    said = project.run("evaluate", project.config("htr/evaluation.json", {"validation_pipelines": ["fit_synthetic"]}))
    assert "cer " in said and "synth loss " in said
    inference = {
        "inference_pipeline": "evaluate_real",
        "post_processor": {"class": f"{HTR}.Text"},
        "inputs_meta": [{"input_converter": {"class": f"{HTR}.Converter"}}],
    }
    assert "y_hat:" in project.run("infer", project.config("htr/inference.json", inference), "ppp")


# Small configs


def test_a_stage_may_refer_to_pipelines_that_are_filled_in(project: Project) -> None:
    project.write("small/__init__.py", f"SHAPE, CHANNELS = (8, 8), 1\n{PICTURES}")
    stop = {"class": "torchassistant.stop_conditions.EpochsCompleted", "args": [1]}
    training = definitions(
        [entry("datasets", "pictures", class_="examples.small.Pictures", args=["data"])],
        [
            entry("models", "net", class_="examples.small.Net"),
            entry("optimizers", "adam", class_="Adam", model="net"),
        ],
    )
    training["train"] = {"stages": [{"training_pipelines": ["training"], "stop_condition": stop}]}
    project.run("init", project.config("small/training.json", training))
    project.train()
    assert list(project.rows()[0]) == ["epoch", "accuracy", "loss"] and len(project.rows()) == 1
    assert project.spec()["autogenerated_split"]["ratio"] == [0.5, 0.25, 0.25]


def test_every_name_is_there() -> None:
    from importlib import import_module

    names = {
        "adapters": ["DefaultInputAdapter"],
        "collators": [
            "BatchDivide", "StackTensors", "ColumnWiseCollator", "CollationError", "SeqsToOneHot", "to_long_tensor",
            "to_float_tensor", "seqs_to_tensor", "stack_tensors", "no_transform", "images_to_tensor", "one_hot_tensor",
        ],
        "data": ["WrappedDataset", "MergedDataset", "DataSplit"],
        "formatters": ["ProgressBar"],
        "loss_functions": ["MaskedCrossEntropy"],
        "metrics": ["metric_functions"],
        "output_adapters": ["OutputAdapter", "IdentityAdapter", "SelectVariables"],
        "output_devices": ["Printer", "SaveAsImages"],
        "preprocessors": [
            "ValuePreprocessor", "ExamplePreprocessor", "NullProcessor", "SimpleNormalizer", "TrainablePreprocessor",
            "ImagePreprocessor", "TextPreprocessor",
        ],
        "stop_conditions": ["StopCondition", "EpochsCompleted", "EarlyStopping"],
        "transforms": ["reverse_onehot", "pad_targets", "DecodeText"],
        "utils": ["Serializable", "Mask", "add_padding", "pad_sequences"],
    }  # fmt: skip
    for module, wanted in names.items():
        home = import_module(f"torcheer_originals.torchassistant.{module}")
        assert [name for name in wanted if not hasattr(home, name)] == []


def test_a_masked_cross_entropy_is_that_of_what_was_not_padded() -> None:
    import torch
    from torch.nn import functional as F

    from torcheer_originals.torchassistant.loss_functions import MaskedCrossEntropy
    from torcheer_originals.torchassistant.transforms import pad_targets, reverse_onehot

    scores = torch.randn(2, 3, 4)
    y_hat, targets, mask = pad_targets(scores, [[1, 2], [3, 0, 1]])
    assert targets.tolist() == [[1, 2, 2], [3, 0, 1]] and mask.mask.sum() == 5 and mask.lengths == [2, 3]
    alone = torch.cat([scores[0, :2], scores[1]])
    wanted = F.cross_entropy(alone, torch.tensor([1, 2, 3, 0, 1]), reduction="sum", label_smoothing=0.1)
    assert torch.allclose(MaskedCrossEntropy("sum", 0.1)(y_hat, targets, mask), wanted)
    assert reverse_onehot(scores, [0])[0].equal(scores.argmax(-1))


def test_a_text_preprocessor_numbers_words_from_its_special_ones_on() -> None:
    from torcheer_originals.torchassistant.preprocessors import (
        SimpleNormalizer,
        TextPreprocessor,
        TrainablePreprocessor,
    )

    words = TextPreprocessor(1)
    words.fit([("x", "go now"), ("x", "go")])
    assert words.process("go there now") == [0, 3, 2, 4, 1] and words.num_words == words.num_classes == 5
    assert words.decode([0, 3, 1, 9]) == "<start> go <end> <OOV>"
    assert words.encode_word(words.sentence_end) == 1 and words.index2word[3] == "go" and words.word_indices["now"] == 4
    again = TextPreprocessor(1)
    again.load_state_dict(json.loads(json.dumps(words.state_dict())))
    assert again.process("go") == words.process("go")

    class Largest(TrainablePreprocessor):
        def _do_fit(self, column: Any) -> Iterator[Any]:
            self.largest = 0
            for value in column:
                self.largest = max(self.largest, value)
                yield value

    largest = Largest(0)
    largest.fit([(3, 1), (5, 2)])
    assert largest.largest == 5 and SimpleNormalizer()(255) == 1.0


def test_images_are_normalised_by_the_means_of_their_own_means_and_deviations() -> None:
    images = [torch.rand(2, 5, 5) for _ in range(7)]
    preprocessor = ImagePreprocessor(1)
    preprocessor.fit([("x", image) for image in images])
    mean = torch.stack([image.mean((1, 2)) for image in images]).mean(0)
    deviation = torch.stack([image.std((1, 2)) for image in images]).mean(0)
    torch.testing.assert_close(torch.tensor(preprocessor.mu), mean)
    torch.testing.assert_close(torch.tensor(preprocessor.sd), deviation)
    expected = (images[0] - mean[:, None, None]) / deviation[:, None, None]
    torch.testing.assert_close(preprocessor.process(images[0]), expected)
    again = ImagePreprocessor(1)
    again.load_state_dict(json.loads(json.dumps(preprocessor.state_dict())))
    assert again.process(images[1]).equal(preprocessor.process(images[1]))


@pytest.mark.parametrize(("size", "count"), [(1000, 1000), (1001, 500), (10_001, 1000)])
def test_preprocessors_learn_from_a_random_share_of_large_data(size: int, count: int) -> None:
    class Seen(TrainablePreprocessor):
        def _do_fit(self, column: Any) -> Any:
            self.values = list(column)
            yield from self.values

    seen, words, data = Seen(0), TextPreprocessor(0), [(str(number),) for number in range(size)]
    seen.fit(data)
    words.fit(data)
    assert len(set(seen.values)) == count and words.num_words == count + 3
    assert (seen.values == [str(number) for number in range(count)]) == (size == count), "in any order"

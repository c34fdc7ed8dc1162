"""A script for W&B, run as it is and with only its import line changed; it writes down what it saw."""

import json
import sys
import wave
from pathlib import Path

import numpy as np
import torch
import wandb

wrong, seen = {}, {}


def attempt(name, call):
    """Write down which exception a wrong call raises."""
    try:
        call()
        wrong[name] = []
    except Exception as error:
        wrong[name] = [kind.__name__ for kind in type(error).__mro__]


attempt("log before init", lambda: wandb.log({"a": 1}))
attempt("config before init", lambda: wandb.config.lr)
attempt("config item before init", lambda: wandb.config["lr"])
attempt("summary before init", lambda: wandb.summary["a"])
attempt("watch before init", lambda: wandb.watch(torch.nn.Linear(1, 1)))
attempt("define_metric before init", lambda: wandb.define_metric("a"))
attempt("alert before init", lambda: wandb.alert("a", "b"))
attempt("save before init", lambda: wandb.save("a"))
attempt("log_artifact before init", lambda: wandb.log_artifact("a"))
attempt("unknown option of init", lambda: wandb.init(projct="x"))
attempt("unknown mode", lambda: wandb.init(mode="fast"))
attempt("unknown resume", lambda: wandb.init(resume="sometimes"))
attempt("id with a slash", lambda: wandb.init(id="a/b"))
attempt("long tag", lambda: wandb.init(tags=["x" * 100]))
wandb.finish()  # without a run: nothing
seen["run before init"] = wandb.run is None

run = wandb.init(
    project="demo", name="first", group="grouped", job_type="train", tags=["b", "a"], notes="a note",
    config={"lr": 0.1, "net": {"width": 3}, "secret": 1}, config_exclude_keys=["secret"],
)  # fmt: skip
seen["same run again"] = wandb.init(project="other") is run and wandb.run is run
seen["facts"] = [run.name, run.project, run.group, run.job_type, list(run.tags), run.notes, run.resumed, run.disabled]
seen["service"] = [run.offline, run.url, run.project_url, run.sweep_id, run.starting_step, isinstance(run.id, str)]
seen["path"] = run.path == f"demo/{run.id}"

wandb.config.depth = 2
wandb.config["batch"] = 8
run.config.update({"optimizer": "adam", "list": [1, 2]})
run.config.setdefaults({"lr": 9, "seed": 3})
run.config.update({"depth": 3}, allow_val_change=True)
seen["config"] = dict(run.config)
seen["config get"] = [run.config.get("nope", 5), "lr" in run.config, run.config.lr, run.config.net["width"]]
attempt("config is changed", lambda: run.config.update({"lr": 0.5}))
attempt("config attribute is changed", lambda: setattr(wandb.config, "lr", 0.5))
attempt("unknown attribute of config", lambda: run.config.nope)
attempt("unknown item of config", lambda: run.config["nope"])

run.define_metric("acc", summary="max")
run.define_metric("val/*", summary="min")
steps = []
for data, options in (
    ({"loss": 1.0, "acc": 0.2}, {}),
    ({"loss": 2.0}, {"commit": False}),
    ({"acc": 0.9}, {}),
    ({"acc": 0.5, "val/loss": 0.3}, {"step": 7}),
    ({"loss": 5}, {"step": 7}),
    ({"loss": np.float32(0.25)}, {"step": 9, "commit": True}),
    ({"nested": {"a": 1, "b": {"c": 2.5}}, "val/loss": 0.6}, {}),
    ({"tensor": torch.tensor(3.5), "flag": True, "word": "text"}, {}),
    ({}, {}),
    ({"loss": float("inf")}, {}),
):
    run.log(data, **options)
    steps.append(run.step)
seen["steps"] = steps
attempt("log of a number", lambda: run.log(3.0))
attempt("log of a key that is no text", lambda: run.log({1: 2}))
attempt("step as a text", lambda: run.log({"x": 1}, step="3"))
attempt("step as a float", lambda: run.log({"x": 1}, step=3.5))
attempt("unknown summary", lambda: run.define_metric("a", summary="sum"))
attempt("star in a name", lambda: run.define_metric("a*b"))
attempt("unknown option of define_metric", lambda: run.define_metric("a", no_such=1))
attempt("watch of a number", lambda: run.watch(3))
attempt("watch of something unknown", lambda: run.watch(torch.nn.Linear(1, 1), log="everything"))
attempt("unknown item of summary", lambda: run.summary["nope"])
attempt("unknown attribute of summary", lambda: run.summary.nope)

generator = np.random.default_rng(0)
bytes_image = generator.integers(0, 255, (6, 5, 3), np.uint8)
table = wandb.Table(columns=["id", "loss"], data=[[17, 2.5], [3, 0.5]])
table.add_data(4, 0.25)
table.add_column("kind", ["a", "b", "c"])
seen["table"] = [table.columns, table.data, table.get_column("loss"), [list(row) for _, row in table.iterrows()]]
histogram = wandb.Histogram([1.0, 2.0, 2.0, 3.0], num_bins=4)
seen["histogram"] = [list(histogram.histogram), list(histogram.bins)]
with wave.open("beep.wav", "wb") as sound:
    sound.setparams((1, 2, 8000, 4, "NONE", ""))
    sound.writeframes(np.array([0, 1000, -1000, 0], np.int16).tobytes())
run.log(
    {
        "image": wandb.Image(bytes_image, caption="bytes"),
        "images": [wandb.Image(bytes_image[:, :, 0], caption="grey"), wandb.Image(bytes_image[:3])],
        "rows": table,
        "weights": histogram,
        "counted": wandb.Histogram(np_histogram=np.histogram([1.0, 2.0, 3.0], bins=4)),
        "sound": wandb.Audio("beep.wav", caption="beep"),
        "page": wandb.Html("<b>bold</b>", inject=False),
        "line": wandb.plot.line_series(xs=[0, 1], ys=[[1, 2], [3, 4]], keys=["p", "q"], title="lines"),
        "matrix": wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 0, 1], class_names=["a", "b"]),
    }
)
attempt("image of five axes", lambda: wandb.Image(np.zeros((2, 3, 4, 5, 6))))
attempt("image of two channels", lambda: wandb.Image(np.zeros((4, 5, 2))))
attempt("image that is not there", lambda: wandb.Image("nowhere.png"))
attempt("row that is too long", lambda: wandb.Table(columns=["a"], data=[[1, 2]]))
attempt("row that is too long, later", lambda: wandb.Table(columns=["a"]).add_data(1, 2))
attempt("histogram of too many bins", lambda: wandb.Histogram([1], num_bins=1000))
attempt("histogram of three parts", lambda: wandb.Histogram(np_histogram=(1, 2, 3)))
attempt("sound without a rate", lambda: wandb.Audio(np.zeros(3)))
attempt("plot of a number", lambda: wandb.plot.bar(3, "a", "b"))
attempt("two answers", lambda: wandb.plot.confusion_matrix(probs=[[1, 0]], preds=[1], y_true=[0]))

run.summary["best"] = 4
run.summary.update({"note": "fine"})
run.alert("title", "look at this", level=wandb.AlertLevel.ERROR)
attempt("unknown level", lambda: run.alert("a", "b", level="LOUD"))

Path("kept.txt").write_text("kept")
Path("model").mkdir(exist_ok=True)
Path("model/weights.bin").write_bytes(b"123")
artifact = wandb.Artifact("net", type="model", metadata={"epochs": 3}, description="a net")
artifact.add_file("kept.txt")
artifact.add_dir("model", name="inner")
with artifact.new_file("made.txt") as file:
    file.write("made")
seen["artifact"] = [artifact.name, artifact.type, artifact.metadata, artifact.description]
seen["logged artifact"] = run.log_artifact(artifact) is artifact
attempt("artifact of a bad name", lambda: wandb.Artifact("a/b", type="model"))
attempt("file that is not there", lambda: wandb.Artifact("a", type="model").add_file("nowhere"))
attempt("folder that is not there", lambda: wandb.Artifact("a", type="model").add_dir("nowhere"))
seen["saved"] = [Path(path).name for path in run.save("kept.txt")]
seen["saved nothing"] = wandb.save("nowhere*")
Path(run.dir, "own.txt").write_text("own")
run.name = "renamed"
run.tags = (*run.tags, "late")
run.notes = "other"
seen["renamed"] = [run.name, list(run.tags), run.notes]
wandb.finish()

seen["run after finish"] = wandb.run is None
attempt("log of an ended run", lambda: run.log({"a": 1}))
attempt("log after finish", lambda: wandb.log({"a": 1}))
attempt("config of an ended run", lambda: run.config.update({"zz": 1}))
run.finish()

try:
    wandb.log({"a": 1})
except wandb.Error:
    seen["caught"] = True
try:
    wandb.log({"a": 1})
except wandb.errors.Error:
    seen["caught in errors"] = True
with wandb.init(mode="disabled", config={"a": 1}) as nothing:
    nothing.log({"x": 1})
    nothing.watch(torch.nn.Linear(1, 1))
    seen["disabled"] = [nothing.disabled, dict(nothing.config)]
Path(sys.argv[1]).write_text(json.dumps({"seen": seen, "wrong": wrong}))

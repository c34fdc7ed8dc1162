"""A script for TensorBoard, run as it is and with only its import line changed; it writes down what it saw."""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

matplotlib.use("agg")
wrong, seen = {}, {}


def attempt(name, call):
    """Write down which exception a wrong call raises."""
    try:
        call()
        wrong[name] = []
    except Exception as error:
        wrong[name] = [kind.__name__ for kind in type(error).__mro__]


def figure():
    from matplotlib import pyplot

    drawn = pyplot.figure(figsize=(2, 1), dpi=50)
    drawn.add_axes((0, 0, 1, 1)).plot([0, 1], [1, 0])
    return drawn


writer = SummaryWriter("board", comment="unused", max_queue=3, flush_secs=1, filename_suffix=".end")
seen["log_dir"] = [writer.log_dir, writer.get_logdir()]
for step in range(5):
    writer.add_scalar("train/loss", torch.tensor(1 / (step + 1)), step)
writer.add_scalar("new", 0.5, 3, new_style=True)
writer.add_scalar("double", 0.1, 3, double_precision=True)
writer.add_scalar("at", np.float64(2.0), torch.tensor(4), walltime=1000.0)
writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 2)
writer.add_histogram("weights", torch.tensor([1.0, 2.0, 2.0, 300.0]), 1)
writer.add_histogram("binned", np.arange(9.0), 1, bins="auto", max_bins=5)
writer.add_histogram_raw("raw", 0.0, 3.0, 3, 4.0, 6.0, [1.0, 2.0, 3.0], [1, 0, 2], 1)
generator = np.random.default_rng(0)
image = generator.integers(0, 255, (3, 6, 5), np.uint8)
writer.add_image("chw", image, 1)
writer.add_image("hwc", image.transpose(1, 2, 0), 2, dataformats="HWC")
writer.add_image("hw", image[0], 2, dataformats="HW")
writer.add_image("floats", torch.from_numpy(image).float() / 255, 3)
writer.add_images("batch", image[None], 3)
writer.add_image_with_boxes("boxed", np.zeros((3, 20, 20), np.uint8), np.array([[4, 5, 12, 14]]), 3)
writer.add_figure("figure", figure(), 4)
writer.add_figure("figures", [figure(), figure()], 4, close=False)
writer.add_video("film", torch.rand(1, 6, 3, 8, 8), 4, fps=4)
writer.add_audio("sound", torch.tensor([[0.0, 0.5, -0.5, 0.25]]), 4, sample_rate=8000)
writer.add_text("said", "hello **there**", 4)
writer.add_graph(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), torch.rand(2, 4))
writer.add_embedding(torch.arange(6.0).reshape(3, 2), metadata=["x", "y", "z"], tag="points", global_step=4)
labels, predictions = np.array([0, 1, 1, 0, 1]), np.array([0.1, 0.8, 0.6, 0.4, 0.9])
writer.add_pr_curve("pr", labels, predictions, 4, num_thresholds=11)
writer.add_pr_curve("weighted", labels, predictions, 4, num_thresholds=7, weights=np.array([1.0, 2.0, 1.0, 0.5, 1.0]))
writer.add_pr_curve_raw("pr raw", *(np.arange(5) + place for place in range(6)), 4, num_thresholds=5)
writer.add_mesh("mesh", torch.arange(12.0).reshape(1, 4, 3), faces=torch.tensor([[[0, 1, 2]]]), global_step=4)
writer.add_tensor("tensor", torch.arange(6.0).reshape(2, 3), 4)
writer.add_custom_scalars({"group": {"chart": ["Multiline", ["train/loss", "new"]]}})
writer.add_custom_scalars_multilinechart(["train/loss", "new"])
writer.add_custom_scalars_marginchart(["a", "b", "c"])
writer.add_hparams({"lr": 0.1, "optimizer": "adam", "bias": True}, {"hparam/acc": 0.75})
attempt("text for a number", lambda: writer.add_scalar("x", "abc", 1))
attempt("nothing for a number", lambda: writer.add_scalar("x", None, 1))
attempt("list for a number", lambda: writer.add_scalar("x", [1, 2], 1))
attempt("two numbers", lambda: writer.add_scalar("x", torch.ones(2), 1))
attempt("histogram of nothing", lambda: writer.add_histogram("x", np.array([]), 1))
attempt("settings that are none", lambda: writer.add_hparams(3, {}))
attempt("metadata of another length", lambda: writer.add_embedding(torch.rand(5, 3), metadata=["a"], tag="x"))
attempt("graph of other inputs", lambda: writer.add_graph(torch.nn.Linear(2, 2), torch.rand(1, 3)))
attempt("unknown option", lambda: writer.add_scalar("x", 1, 2, no_such=3))
attempt("unknown option of a writer", lambda: SummaryWriter("other", no_such=3))
writer.flush()
writer.close()
writer.close()
writer.add_scalar("late", 1.0, 9)
writer.close()

for purge_step in (None, 2):
    with SummaryWriter("purged", purge_step=purge_step) as again:
        for step in range(purge_step or 0, 4):
            again.add_scalar("loss", 1.0 if purge_step is None else 2.0, step)
Path(sys.argv[1]).write_text(json.dumps({"seen": seen, "wrong": wrong}))

"""PyTorch Inspector's own example, with the import of ours and a few steps of training behind it.

    python examples/inspector/main.py

Videos of the output and of three gradients are then in `output/`. `models.alexnet()` is torchvision's where that is
installed, and the same network without it otherwise.
"""

import sys
from pathlib import Path

import torch

from torcheer.inspector import DataRecorder, ParrallelHandler

try:
    from torchvision import models
except (ImportError, RuntimeError):  # not installed, or without a build for this torch
    sys.path.append(str(Path(__file__).parents[1]))
    import alexnet as models

    models.alexnet = models.AlexNet


def main(steps=81, size=64):
    model = models.alexnet()

    # Callbacks are called in child processes; DataRecorder's make a video of whatever they get.
    dr = DataRecorder((640, 480), 20.0, 100, "output")

    # Every 20th call is passed on. A child ends after 30 seconds without any.
    ph = ParrallelHandler(callback_onrun=dr.tensor_plot2D, callback_onclosing=dr.flush, frequency=20.0, timeout=30.0)

    # -1 is no child's number: each of these starts one.
    ph.track_model(-1, {"model": model})
    ph.track_layer(
        -1,
        {
            "classifier0_": model.classifier[0],
            "classifier3_": model.classifier[3],
            "classifier6_": model.classifier[6],
        },
    )

    train(model, steps, size)
    ph.stop(True)
    for path in sorted(Path("output").glob("*.mp4")):
        print(path)


def train(model, steps, size):
    handler = ParrallelHandler()  # anywhere: the first one
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        handler.set_internal_message(f"step:{step}")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.rand(2, 3, size, size)), torch.tensor([3, 7])).backward()
        optimizer.step()


if __name__ == "__main__":
    main()

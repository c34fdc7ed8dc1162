"""Capture an AlexNet, look at it, draw it, write its table: `python examples/demo.py [folder]`."""

import sys
from contextlib import chdir
from pathlib import Path

import torch
from alexnet import AlexNet

import torcheer as tl

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output").resolve()
folder.mkdir(parents=True, exist_ok=True)

torch.manual_seed(0)
alexnet = AlexNet()
x = torch.rand(1, 3, 224, 224)

with chdir(folder):  # the drawing is written where we stand
    history = tl.log_forward_pass(alexnet, x, layers_to_save="all", vis_opt="unrolled")
print(history)
print(history["conv2d_3_7"])

history.draw(folder / "alexnet.html")  # open it in a browser: fold, search, hover
history.to_pandas().to_csv(folder / "alexnet.csv", index=False)
print("\nWritten:")
for file in sorted(folder.iterdir()):
    print(f"  {file}")

"""AlexNet in the studio: every feature map of every step, as eTorch's `alexnet` shows it.

`python examples/alexnet_netview/main.py [IMAGE …]` opens the studio; Test item and Test all show one image after the
other. Weights are random unless `--weights FILE.safetensors` brings some, under torchvision's names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from torcheer.studio import Simulation, State

SIZE = 224
STRENGTH = 0.75
PLACES = {
    "C1": {"above": "Image"}, "P1": {"right_of": "C1"}, "C2": {"above": "C1"}, "P2": {"right_of": "C2"},
    "C3": {"above": "C2"}, "C4": {"right_of": "C3"}, "C5": {"right_of": "C4"}, "P5": {"above": "C3"},
    "AP": {"right_of": "P5"}, "Cl1": {"above": "P5"}, "Cl2": {"right_of": "Cl1"}, "Out": {"right_of": "Cl2"},
}  # fmt: skip


class AlexNet(nn.Module):
    """The net of 2014's "One weird trick", written down here; `forward` is the one of eTorch's README."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
            nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes),
        )  # fmt: skip
        self.est = State(self)
        self.fnames = ["C1.Net", "C1.Act", "P1.Act", "C2.Net", "C2.Act", "P2.Act", "C3.Net", "C3.Act",
                       "C4.Net", "C4.Act", "C5.Net", "C5.Act", "P5.Act"]  # fmt: skip
        self.cnames = ["", "Cl1.Net", "Cl1.Act", "", "Cl2.Net", "Cl2.Act", "Out.Act"]
        self.est.rec_wts = True
        self.est.wtmap = {"ImageToC1": "features.0", "P1ToC2": "features.3", "P2ToC3": "features.6",
                          "C3ToC4": "features.8", "C4ToC5": "features.10"}  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.est.rec(x, "Image.Act")
        for i, f in enumerate(self.features):
            x = f(x)
            self.est.rec(x, self.fnames[i])
        x = self.avgpool(x)
        self.est.rec(x, "AP.Act")
        x = torch.flatten(x, 1)
        for i, f in enumerate(self.classifier):
            x = f(x)
            cnm = self.cnames[i]
            if len(cnm) > 0:
                self.est.rec(x, cnm)
        return x


def drawn_images() -> dict[str, torch.Tensor]:
    """Four pictures that need no file: edges of several directions, sizes and colours, and noise."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    radius = np.hypot(x, y)
    grating = np.stack([np.sin(20 * x), np.sin(20 * (x + y) / 2), np.sin(20 * y)])
    rings = np.stack([np.cos(24 * radius), np.cos(24 * radius + 2), np.cos(24 * radius + 4)])
    disk = np.stack([radius < 0.6, np.hypot(x - 0.3, y - 0.2) < 0.3, x > y]) * 2.0 - 1
    noise = np.random.default_rng(1).normal(size=(3, SIZE, SIZE))
    pictures = {"noise": noise, "rings": rings, "grating": grating, "disk": disk}
    return {name: torch.from_numpy(picture).float() for name, picture in pictures.items()}


def read_image(path: str) -> torch.Tensor:
    """A picture of any size, as ImageNet's nets want it."""
    from PIL import Image

    pixels = np.asarray(Image.open(path).convert("RGB").resize((SIZE, SIZE)), np.float32) / 255
    scaled = (pixels - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    return torch.from_numpy(scaled).float().permute(2, 0, 1)


class Task:
    """Show the net an image; there is no training, so there are no buttons for it."""

    @torch.no_grad()
    def __init__(self, images: dict[str, torch.Tensor], weights: str = "") -> None:
        self.model = AlexNet().eval()
        self.names, self.images, self.items = list(images), images, len(images)
        if weights:
            from safetensors.torch import load_file

            self.model.load_state_dict(load_file(weights))
        else:
            for parameter in self.model.parameters():  # about as strong as the layer before, whatever is shown
                nn.init.kaiming_normal_(parameter).mul_(STRENGTH) if parameter.dim() > 1 else nn.init.zeros_(parameter)
        self.test_item(0)  # the layers are made by what is recorded
        for name, where in PLACES.items():
            self.model.est.net[name].put(**where)

    @torch.no_grad()
    def test_item(self, item: int) -> dict[str, object]:
        output = self.model(self.images[self.names[item]][None]).softmax(1)[0]
        best = output.topk(5)
        return {"Name": self.names[item], "Class": str(int(best.indices[0])), "Probability": float(best.values[0]),
                "Top5": best.indices.numpy()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "images", nargs="*", metavar="IMAGE", help="pictures to show; four drawn ones where none is given"
    )
    parser.add_argument("--weights", default="", metavar="FILE", help="a .safetensors file with AlexNet's weights")
    parser.add_argument("--headless", action="store_true", help="test all images without a page, and print all shapes")
    parser.add_argument("--listen", metavar="DIR", help="wait for `torcheer studio DIR` instead of opening a page")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no window")
    options = parser.parse_args()
    torch.manual_seed(1)
    images = {Path(path).name: read_image(path) for path in options.images} or drawn_images()
    task = Task(images, options.weights)
    simulation = Simulation("AlexNet", task, net=task.model.est.net)
    if options.headless:
        task.model.est.trace = True  # print what is recorded
        task.test_item(0)
        task.model.est.trace = False
        for row in simulation.test():
            print(f"{row['Name']}: class {row['Class']} with probability {row['Probability']:.4f}")
        return
    if options.listen:
        simulation.listen(options.listen)
        print(f"listening: torcheer studio {options.listen}", flush=True)
        simulation.run(open=False)
    else:
        simulation.run(browser=False if options.no_browser else None)


if __name__ == "__main__":
    main()

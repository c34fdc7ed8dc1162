"""What the tour shows at a Python prompt: a drawing, a transformer in 3D, a backward pass."""

from __future__ import annotations

import os
from pathlib import Path

from scenes import Scenes


class PythonScenes(Scenes):
    """Lines at a prompt, and the pages that they open."""

    def draw(self) -> None:
        tour, page = self.recorder, self.page
        self.run(
            "import torch, torchvision, torcheer as tl",
            "resnet = torchvision.models.resnet18().eval()",
            "history = tl.log_forward_pass(resnet, torch.rand(1, 3, 224, 224))",
            'print(history["layer1.0.conv1"])',
            "history.validate()",
            'history.draw("resnet18.html")',
        )
        tour.show_terminal(900)
        page.goto((Path(os.readlink(f"/proc/{self.shell.pid}/cwd")) / "resnet18.html").as_uri())
        tour.settle()
        tour.pointer = (600, 560)
        tour.frames(1.0)
        tour.click((130, 510), after=1.2)  # a stack of two blocks
        tour.click(page.get_by_text("Fit", exact=True), after=1.6)

    def walk(self) -> None:
        tour = self.recorder
        self.run(
            "from transformers import GPT2Config, GPT2Model",
            "gpt2 = GPT2Model(GPT2Config())",
            "viewer = tl.show(gpt2, torch.randint(0, 50257, (1, 12)))",
        )
        self.open()
        self.page.keyboard.press("p")  # no parameters
        tour.settle(0.5)
        tour.pointer = (600, 560)
        tour.frames(1.0)
        tour.click(self.label(r"^h\."), after=2.4)
        tour.click(self.label(r"^h\.3$"), after=3.0)

    def step_back(self) -> None:
        tour = self.recorder
        self.run(
            "import torcheer.autograd as autograd",
            "a = autograd.tracer([1.0, 2.0, 3.0]).requires_grad_(); b = a + a",
            "viewer = tl.show((b.exp() * b.sin()).sum())",
        )
        self.open("backward")
        self.page.keyboard.press("p")
        tour.settle(0.5)
        tour.pointer = None
        tour.frames(0.8)
        for _ in range(10):
            self.page.keyboard.press("ArrowRight")
            tour.frames(0.8)

    def end(self) -> None:
        tour, page = self.recorder, self.page
        page.goto(Path(__file__).with_name("end.html").as_uri())
        tour.pointer = None
        tour.settle(0.3)
        tour.still(3.0)

    def run(self, *lines: str) -> None:
        """Type lines at a prompt; a new chapter begins on an empty screen."""
        tour, shell = self.recorder, self.shell
        if tour.program:  # the training of the chapters before
            os.kill(tour.program, 9)
            tour.program = 0
        shell.type("\x03")
        if not shell.screen.text().rstrip().endswith(">>>"):
            shell.until(r"\$ $")
            shell.type("python -q\n")
            shell.until(r">>> $")
            if not lines[0].startswith("import torch,"):
                shell.type("import torch, torcheer as tl\n")
        shell.screen.clear()
        shell.type("\n")
        shell.until(r"^\n>>> $")
        shell.screen.lines[:1] = []
        shell.screen.row -= 1
        tour.enlarge_terminal()
        for line in lines:
            tour.enter(line, pace=7, pause_ms=200)
            shell.until(r"\n>>> $")
            tour.show_terminal(300)

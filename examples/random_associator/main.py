"""A random associator under the studio's control: eTorch's `etra25`.

25 random patterns of 5 × 5 units, 6 of them active, each to be answered by another: Input, two hidden layers, Output.
`python examples/random_associator/main.py` opens the studio: Init, Train, Step, Test, weights of any unit, all plots.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor, nn

from torcheer.studio import Network, Simulation, State, Table

PATTERNS, SIDE, ACTIVE = 25, 5, 6


class Associator(nn.Module):
    """Input → Hidden1 → Hidden2 → Output; every step is recorded."""

    def __init__(self, size: int = SIDE * SIDE, hidden: int = 35) -> None:
        super().__init__()
        self.fch1, self.fch2, self.fcout = nn.Linear(size, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, size)
        self.est = State(self)
        self.est.wtmap = {"InputToHidden1": "fch1", "Hidden1ToHidden2": "fch2", "Hidden2ToOutput": "fcout"}
        self.est.rec_wts = self.est.rec_grads = True

    def forward(self, x: Tensor) -> Tensor:
        self.est.rec(x, "Input.Act")
        x = self.fch1(x)
        self.est.rec(x, "Hidden1.Net")
        x = torch.relu(x)
        self.est.rec(x, "Hidden1.Act")
        x = self.fch2(x)
        self.est.rec(x, "Hidden2.Net")
        x = torch.relu(x)
        self.est.rec(x, "Hidden2.Act")
        x = self.fcout(x)
        self.est.rec(x, "Output.Net")
        x = torch.sigmoid(x)
        self.est.rec(x, "Output.Act")
        return x


def make_network() -> Network:
    """The layers as they are drawn."""
    net = Network("RA25")
    net.add_layer("Input", (5, 5), "Input")
    net.add_layer("Hidden1", (5, 7), "Hidden")
    net.add_layer("Hidden2", (5, 7), "Hidden")
    net.add_layer("Output", (5, 5), "Target")
    for sender, receiver in (("Input", "Hidden1"), ("Hidden1", "Hidden2"), ("Hidden2", "Output")):
        net.connect(sender, receiver)
    return net


def make_patterns(seed: int = 1) -> Table:
    """What goes in, and what shall come out."""
    generator = np.random.default_rng(seed)

    def images() -> np.ndarray:
        found = np.zeros((PATTERNS, SIDE * SIDE), np.float32)
        for row in found:
            row[generator.permutation(SIDE * SIDE)[:ACTIVE]] = 1
        return found.reshape(PATTERNS, SIDE, SIDE)

    names = [f"p{number:02}" for number in range(PATTERNS)]
    return Table({"Name": names, "Input": images(), "Output": images()}, name="patterns", title="Patterns")


class Task:
    """What happens at Init, in a trial, in a test; `Simulation` does the rest."""

    trials = items = PATTERNS

    def __init__(self, net: Network, patterns: Table) -> None:
        self.model = Associator()
        self.model.est.set_net(net)
        self.patterns = patterns
        self.inputs = torch.from_numpy(patterns["Input"]).flatten(1)
        self.targets = torch.from_numpy(patterns["Output"]).flatten(1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.5)

    def init(self, seed: int) -> None:
        torch.manual_seed(seed)
        for module in (self.model.fch1, self.model.fch2, self.model.fcout):
            module.reset_parameters()
        self.optimizer.state.clear()
        self.order = torch.randperm(self.trials).tolist()
        self.test_item(0)  # something to look at

    def train_trial(self, trial: int) -> dict[str, object]:
        if trial == 0:
            self.order = torch.randperm(self.trials).tolist()
        item = self.order[trial]
        output = self.model(self.inputs[item])
        loss = nn.functional.binary_cross_entropy(output, self.targets[item])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"Name": self.patterns["Name"][item], "Loss": loss.item(), **self.errors(output, item)}

    @torch.no_grad()
    def test_item(self, item: int) -> dict[str, object]:
        output = self.model(self.inputs[item])
        shown = {"Input": self.patterns["Input"][item], "Output": output.view(SIDE, SIDE).numpy()}
        return {"Name": self.patterns["Name"][item], **self.errors(output, item), **shown}

    def errors(self, output: Tensor, item: int) -> dict[str, float]:
        """Units on the right side of 0.5 make no error, as in emergent."""
        off = (output.detach() - self.targets[item]).abs()
        squares = torch.where(off < 0.5, 0.0, off**2).sum().item()
        return {"SSE": squares, "Err": float(squares > 0)}

    def set_learning_rate(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = value


def make_simulation() -> Simulation:
    net, patterns = make_network(), make_patterns()
    task = Task(net, patterns)
    simulation = Simulation("Random associator", task, net=net, patterns=patterns)
    simulation.parameter("lr", 0.2, doc="learning rate", minimum=0.0, change=task.set_learning_rate)
    return simulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headless", action="store_true", help="train without a page, and say how it went")
    parser.add_argument("--epochs", type=int, help="the most that a run has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--listen", metavar="DIR", help="wait for `torcheer studio DIR` instead of opening a page")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no window")
    parser.add_argument("--save", metavar="FILE", help="with --headless: write the weights there, .safetensors or .npz")
    options = parser.parse_args()
    simulation = make_simulation()
    simulation["seed"] = options.seed
    if options.epochs:
        simulation["epochs"] = options.epochs
    if options.headless:
        simulation.train()
        last = simulation.logs["train_epoch"][-1]
        print(f"{simulation.message}; SSE {last['SSE']:.3f}, errors {last['Err']:.0%}")
        if options.save:
            simulation.net.save_weights(options.save)
            print(f"weights in {options.save}")
    elif options.listen:
        simulation.listen(options.listen)
        print(f"listening: torcheer studio {options.listen}", flush=True)
        simulation.run(open=False)
    else:
        simulation.run(browser=False if options.no_browser else None)


if __name__ == "__main__":
    main()

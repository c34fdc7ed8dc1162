"""Which jumps of a loss the rule `loss_spike` tells: real trainings of many kinds, as they are and with one bad batch.

    python benchmarks/loss_spikes.py [--only gan,lstm] [--seeds 2] [--losses FOLDER]

Of an ordinary training nothing may be told; of one with a bad batch that batch, once, and nothing else. The exit status
is 1 where it is not so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torcheer.monitor.rules import resolve_rules
from torcheer.monitor.rules.loss_spikes import LossLevel

Spoil = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
Losses = Iterator[dict[str, Tensor]]
Batches = Callable[[int], tuple[Tensor, Tensor]]


# -- data


def digits(count: int = 2000, noise: float = 0.7, wrong: float = 0.0, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Noisy pictures of 8×8, each class another smooth shape; some of their labels may be wrong."""
    shapes = F.interpolate(torch.randn(classes, 1, 3, 3), 8, mode="bicubic")
    y = torch.randint(0, classes, (count,))
    x = shapes[y] + noise * torch.randn(count, 1, 8, 8)
    other = torch.rand(count) < wrong
    y[other] = torch.randint(0, classes, (int(other.sum()),))
    return x, y


def shuffled(x: Tensor, y: Tensor, size: int) -> Batches:
    """Batches of data in another order in each epoch; the last of an epoch has what is left."""
    order: dict[int, Tensor] = {}
    count = -(-len(x) // size)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        epoch, number = divmod(step, count)
        if epoch not in order:
            order.clear()
            order[epoch] = torch.randperm(len(x))
        rows = order[epoch][number * size : (number + 1) * size]
        return x[rows], y[rows]

    return batch


def text() -> Tensor:
    """The characters of this file, as numbers."""
    characters = Path(__file__).read_text()
    return torch.tensor([min(ord(character), 127) for character in characters])


# -- trainings


def trained(model: nn.Module, optimizer: Any, batches: Batches, loss_of: Any, steps: int, spoil: Spoil,
            *, schedule: Any = None, clip: float = 0.0) -> Losses:  # fmt: skip
    for step in range(steps):
        x, y = spoil(step, *batches(step))
        loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        yield {"loss": loss.detach()}


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def mlp(drop: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(drop), nn.Linear(64, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )


def classifier(
    make: Any = mlp, optimizer: Any = torch.optim.SGD, rate: float = 0.1, size: int = 32, schedule: Any = None,
    steps: int = 1500, data: dict[str, Any] | None = None, **options: Any,
) -> Callable[[Spoil], Losses]:  # fmt: skip
    def run(spoil: Spoil) -> Losses:
        model = make()
        made = optimizer(model.parameters(), rate, **options)
        batches = shuffled(*digits(**(data or {})), size)
        scheduler = schedule(made) if schedule else None
        return trained(model, made, batches, classify, steps, spoil, schedule=scheduler)

    return run


def regression(spoil: Spoil, heavy: bool = False, steps: int = 1500) -> Losses:
    x = torch.randn(2000, 8)
    noise = torch.distributions.StudentT(3.0).sample((2000, 1)) if heavy else torch.randn(2000, 1)
    y = x @ torch.randn(8, 1) + 0.1 * noise
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    return trained(model, optimizer, shuffled(x, y, 16), lambda m, a, b: F.mse_loss(m(a), b), steps, spoil)


def to_zero(spoil: Spoil) -> Losses:
    """A linear model that finds the answer exactly."""
    x = torch.randn(512, 8)
    y = x @ torch.randn(8, 1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    return trained(model, optimizer, shuffled(x, y, 16), lambda m, a, b: F.mse_loss(m(a), b), 1500, spoil)


class Recurrent(nn.Module):
    """Reads a sequence, answers at its end."""

    def __init__(self, cell: Any, width: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.cell, self.last = cell(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(self.cell(x)[0][:, -1])
        return answer


def adding(cell: Any, rate: float, clip: float) -> Callable[[Spoil], Losses]:
    """The adding problem: the sum of the two marked numbers of a sequence."""

    def run(spoil: Spoil) -> Losses:
        def batch(step: int) -> tuple[Tensor, Tensor]:
            numbers, marks = torch.rand(32, 20), torch.zeros(32, 20)
            marks.scatter_(1, torch.rand(32, 20).topk(2, dim=1).indices, 1.0)
            return torch.stack([numbers, marks], -1), (numbers * marks).sum(1, keepdim=True)

        model = Recurrent(cell, 24, 2, 1)
        optimizer = torch.optim.Adam(model.parameters(), rate)
        return trained(model, optimizer, batch, lambda m, a, b: F.mse_loss(m(a), b), 1200, spoil, clip=clip)

    return run


class Letters(nn.Module):
    """The next character of a text."""

    def __init__(self, core: str) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(128, 32), nn.Linear(32, 128)
        self.recurrent = nn.GRU(32, 32, batch_first=True) if core == "gru" else None
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.places = nn.Parameter(0.02 * torch.randn(24, 32))

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.embed(x)
        if self.recurrent is not None:
            hidden = self.recurrent(embedded)[0]
        else:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            hidden = self.block(embedded + self.places[: x.shape[1]], src_mask=mask, is_causal=True)
        answer: Tensor = self.last(hidden)
        return answer


def letters(core: str, size: int, rate: float, warm: int = 0) -> Callable[[Spoil], Losses]:
    def run(spoil: Spoil) -> Losses:
        characters = text()

        def batch(step: int) -> tuple[Tensor, Tensor]:
            starts = torch.randint(0, len(characters) - 25, (size, 1)) + torch.arange(25)
            rows = characters[starts]
            return rows[:, :-1], rows[:, 1:]

        model = Letters(core)
        optimizer = torch.optim.AdamW(model.parameters(), rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(warm, 1)))
        loss_of = lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten())  # noqa: E731
        return trained(model, optimizer, batch, loss_of, 800, spoil, schedule=schedule)

    return run


def gan(critic: bool) -> Callable[[Spoil], Losses]:
    """A generator and its critic, whose losses take turns to rise."""

    def run(spoil: Spoil) -> Losses:
        real, _ = digits(1000, noise=0.2)
        maker = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
        judge = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
        rates = (5e-4, 5e-4) if critic else (1e-3, 2e-3)
        makes = torch.optim.Adam(maker.parameters(), rates[0], betas=(0.5, 0.9))
        judges = torch.optim.Adam(judge.parameters(), rates[1], betas=(0.5, 0.9))
        for step in range(1500):
            x, _ = spoil(step, real[torch.randint(0, 1000, (32,))].flatten(1), torch.zeros(32))
            good, bad = judge(x), judge(maker(torch.randn(32, 8)).detach())
            d_loss = bad.mean() - good.mean() if critic else F.softplus(-good).mean() + F.softplus(bad).mean()
            judges.zero_grad()
            d_loss.backward()
            judges.step()
            if critic:
                for parameter in judge.parameters():
                    parameter.data.clamp_(-0.1, 0.1)
            answer = judge(maker(torch.randn(32, 8)))
            g_loss = -answer.mean() if critic else F.softplus(-answer).mean()
            makes.zero_grad()
            g_loss.backward()
            makes.step()
            yield {"d_loss": d_loss.detach(), "g_loss": g_loss.detach()}

    return run


def vae(spoil: Spoil) -> Losses:
    encoder, decoder = nn.Linear(64, 8), nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64))
    model = nn.ModuleList([encoder, decoder])

    def loss_of(_: Any, x: Tensor, __: Any) -> Tensor:
        x = x.flatten(1)
        mean, log_variance = encoder(x).chunk(2, dim=1)
        hidden = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        far = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return ((decoder(hidden) - x) ** 2).sum(1).mean() + far

    optimizer = torch.optim.Adam(model.parameters(), 0.002)
    return trained(model, optimizer, shuffled(*digits(), 32), loss_of, 1200, spoil)


def policy(spoil: Spoil) -> Losses:
    """REINFORCE in a world of one step: losses of both signs."""
    model = mlp()

    def loss_of(_: Any, x: Tensor, y: Tensor) -> Tensor:
        choices = torch.distributions.Categorical(logits=model(x))
        actions = choices.sample()
        rewards = (actions == y).float()
        return -(choices.log_prob(actions) * (rewards - rewards.mean())).mean()

    return trained(model, torch.optim.Adam(model.parameters(), 0.003), shuffled(*digits(), 32), loss_of, 1500, spoil)


def q_learning(spoil: Spoil) -> Losses:
    """Temporal differences with a target network that jumps every 100 steps."""
    model, target = (nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in range(2))
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for step in range(2000):
        if step % 100 == 0:
            target.load_state_dict(model.state_dict())
        state, action = spoil(step, torch.randn(32, 4), torch.randint(0, 2, (32,)))
        after = 0.9 * state + 0.3 * (2 * action[:, None] - 1) + 0.1 * torch.randn(32, 4)
        with torch.no_grad():
            goal = -after.square().mean(1) + 0.9 * target(after).max(1).values
        loss = F.smooth_l1_loss(model(state).gather(1, action[:, None])[:, 0], goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield {"loss": loss.detach()}


def triplets(spoil: Spoil) -> Losses:
    """A margin loss, which is exactly zero for more and more batches."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    x, y = digits()

    def loss_of(_: Any, anchor: Tensor, labels: Tensor) -> Tensor:
        same = torch.stack([x[y == label][torch.randint(0, int((y == label).sum()), ())] for label in labels])
        other = x[torch.randint(0, len(x), (len(anchor),))]
        return F.triplet_margin_loss(model(anchor), model(same), model(other), margin=0.5)

    return trained(model, torch.optim.Adam(model.parameters(), 0.002), shuffled(x, y, 16), loss_of, 600, spoil)


def contrast(spoil: Spoil) -> Losses:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))

    def loss_of(_: Any, x: Tensor, __: Tensor) -> Tensor:
        first, second = (F.normalize(model(x + 0.3 * torch.randn_like(x)), dim=1) for _ in range(2))
        return F.cross_entropy(first @ second.T / 0.1, torch.arange(len(x)))

    return trained(model, torch.optim.Adam(model.parameters(), 0.002), shuffled(*digits(), 32), loss_of, 800, spoil)


SCHEDULES = torch.optim.lr_scheduler
TRAININGS: dict[str, Callable[[Spoil], Losses]] = {
    "MLP, SGD": classifier(),
    "MLP, Adam": classifier(optimizer=torch.optim.Adam, rate=1e-3),
    "MLP, SGD, high rate": classifier(rate=1.0),
    "MLP, RMSprop, high rate": classifier(optimizer=torch.optim.RMSprop, rate=0.02),
    "MLP, batches of 1": classifier(rate=0.01, size=1, steps=4000),
    "MLP, batches of 1, easy": classifier(rate=0.01, size=1, steps=6000, data={"noise": 0.4}),
    "MLP, batches of 4, Adam": classifier(optimizer=torch.optim.Adam, rate=1e-3, size=4, steps=3000),
    "MLP, 20% wrong labels, batches of 8": classifier(size=8, steps=3000, data={"wrong": 0.2}),
    "MLP, 1% wrong labels, batches of 8": classifier(size=8, steps=3000, data={"wrong": 0.01, "noise": 0.4}),
    "MLP, dropout 0.5": classifier(lambda: mlp(0.5), size=16, rate=0.2),
    "MLP, last batch of 1": classifier(size=64, data={"count": 1985}, steps=1500),
    "MLP, learnt by heart": classifier(optimizer=torch.optim.Adam, rate=3e-3, data={"count": 200}, steps=2500),
    "CNN, Adam": classifier(cnn, torch.optim.Adam, 2e-3, steps=800),
    "CNN, SGD with momentum, steps": classifier(
        cnn, rate=0.05, momentum=0.9, schedule=lambda o: SCHEDULES.StepLR(o, 300, 0.1), steps=1000),
    "MLP, warm restarts": classifier(
        rate=0.3, momentum=0.9, schedule=lambda o: SCHEDULES.CosineAnnealingWarmRestarts(o, 250), steps=1500),
    "CNN, warm restarts": classifier(
        cnn, rate=0.1, momentum=0.9, schedule=lambda o: SCHEDULES.CosineAnnealingWarmRestarts(o, 200), steps=1000),
    "MLP, one cycle": classifier(
        rate=0.1, momentum=0.9, schedule=lambda o: SCHEDULES.OneCycleLR(o, 0.5, total_steps=1500)),
    "MLP, all data at once": classifier(rate=0.8, size=500, data={"count": 500}, steps=1000),
    "regression": regression,
    "regression, heavy tails": lambda spoil: regression(spoil, heavy=True),
    "regression to zero": to_zero,
    "LSTM, adding": adding(nn.LSTM, 0.01, 1.0),
    "GRU, adding, no clip": adding(nn.GRU, 0.02, 0.0),
    "RNN, adding": adding(nn.RNN, 0.003, 0.0),
    "letters, GRU": letters("gru", 16, 3e-3),
    "letters, Transformer, warm-up": letters("attention", 16, 3e-3, warm=100),
    "letters, Transformer, batches of 2": letters("attention", 2, 1e-3),
    "GAN": gan(critic=False),
    "GAN, Wasserstein": gan(critic=True),
    "VAE": vae,
    "policy gradient": policy,
    "Q-learning": q_learning,
    "triplets": triplets,
    "contrastive": contrast,
}  # fmt: skip

# Which of them get a bad batch, and what is bad about it.
BAD: dict[str, tuple[str, ...]] = {
    "labels": (
        "MLP, SGD", "MLP, Adam", "MLP, dropout 0.5", "MLP, last batch of 1", "CNN, Adam",
        "CNN, SGD with momentum, steps", "MLP, warm restarts", "MLP, one cycle", "CNN, warm restarts", "letters, GRU",
        "MLP, all data at once",
    ),
    "inputs": (
        "MLP, SGD", "MLP, Adam", "MLP, SGD, high rate", "MLP, batches of 4, Adam", "MLP, 1% wrong labels, batches of 8",
        "CNN, Adam", "regression", "regression, heavy tails", "regression to zero", "LSTM, adding", "RNN, adding",
        "VAE", "Q-learning",
    ),
}  # fmt: skip


def spoiled(what: str, at: int) -> Spoil:
    """Make one batch bad: its labels moved to other classes, or its inputs noise of 30 times their size."""

    def spoil(step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if step != at:
            return x, y
        if what == "labels":
            return x, (y + 1 + y.roll(1) % 7) % 10 if int(y.max()) < 10 else y.flip(0).roll(7)
        return 30 * x.std() * torch.randn_like(x), y

    return spoil


def losses_of(name: str, seed: int, spoil: Spoil = lambda step, x, y: (x, y)) -> dict[str, np.ndarray[Any, Any]]:
    torch.manual_seed(seed)
    rows = list(TRAININGS[name](spoil))
    return {column: np.array([float(row[column]) for row in rows]) for column in rows[0]}


def told(losses: dict[str, np.ndarray[Any, Any]]) -> list[tuple[str, int]]:
    """The steps at which the rule tells a spike: the first of each."""
    found = []
    for column, numbers in losses.items():
        level = LossLevel(resolve_rules(["loss_spike"])["loss_spike"])
        for step, loss in enumerate(numbers.tolist()):
            if level.add(loss) is not None:
                found.append((column, step))
    return found


def cases(only: str, seeds: int) -> Iterator[tuple[str, int, str]]:
    """Name, seed and fault ("" for none) of the runs."""
    for name in TRAININGS:
        if any(part.lower() in name.lower() for part in only.split(",")):
            for seed in range(seeds):
                yield from (
                    (name, seed, what) for what in ("", *(what for what, names in BAD.items() if name in names))
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="parts of names, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--losses", type=Path, help="write all losses there, as npz")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    runs = wrong = count = 0
    for name, seed, what in cases(chosen.only, chosen.seeds):
        at = 2 * count // 3 + 7  # of the run before, which is the same without a fault
        losses = losses_of(name, seed, spoiled(what, at)) if what else losses_of(name, seed)
        runs, count, found = runs + 1, len(next(iter(losses.values()))), told(losses)
        is_right = [step for _, step in found] == [at] if what else not found
        wrong += not is_right
        shown = "; ".join(f"{column} {step}" for column, step in found) or "nothing"
        fault = f", bad {what} at {at}" if what else ""
        print(f"{'' if is_right else 'WRONG: '}{name}, seed {seed}, {count} steps{fault}: {shown}", flush=True)
        if chosen.losses is not None:
            chosen.losses.mkdir(parents=True, exist_ok=True)
            np.savez(chosen.losses / f"{name} {seed} {what}.npz", bad=at if what else -1, **losses)  # type: ignore[arg-type]
    print(f"{runs} runs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

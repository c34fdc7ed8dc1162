"""Small sessions, and the loops that people would write in their place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)

from torcheer.training import (
    EpochsCompleted,
    Graph,
    Input,
    Loader,
    Measure,
    Node,
    Options,
    Pipeline,
    Processor,
    Session,
    Stage,
    Term,
)

MSE = Measure(nn.MSELoss(), ("y_hat", "y"))


def points(count: int, seed: int = 0) -> TensorDataset:
    draw = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 4, generator=draw), torch.randn(count, 1, generator=draw))


def batches(count: int, seed: int = 0, size: int = 4) -> list[tuple[Tensor, Tensor]]:
    x, y = points(count, seed).tensors
    return list(zip(x.split(size), y.split(size)))


def network(*layers: nn.Module) -> nn.Module:
    found = nn.Sequential(*(layers or (nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))))
    torch.manual_seed(3)
    for one in found.modules():
        if isinstance(one, nn.Linear):
            one.reset_parameters()
    return found


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)


def chain(*models: str, optimizer: str | None = "o", **optimizers: str | None) -> Processor:
    """Models one behind the other, from x to y_hat."""
    names = ["x", *(f"h{number}" for number in range(1, len(models))), "y_hat"]
    return Processor(
        tuple(
            Node(model, (names[number],), (names[number + 1],), optimizers.get(model, optimizer))
            for number, model in enumerate(models)
        )
    )


def session(
    models: dict[str, nn.Module],
    optimizers: dict[str, torch.optim.Optimizer] | None = None,
    *,
    processors: dict[str, Processor] | None = None,
    data: dict[str, Any] | None = None,
    epochs: int = 2,
    losses: dict[str, Measure] | None = None,
    validation: tuple[str, ...] = (),
    others: dict[str, Any] | None = None,
    **options: Any,
) -> Session:
    """A pipeline for each processor, or for each of the data where there is one processor; all of them are trained."""
    data = data or {"data": points(20)}
    optimizers = optimizers or {"o": sgd(next(iter(models.values())))}
    processors = processors or {"p": chain(*models)}
    loaders = {
        name: one if isinstance(one, Loader | DataLoader) else Loader(one, 4, shuffle=False)
        for name, one in data.items()
    }
    losses = losses or {"mse": MSE}
    pairs = [(name, loader) for name in processors for loader in loaders]
    pipelines = {
        f"{name} {loader}": Pipeline(
            name,
            (Input(loader, ("x", "y")),),
            tuple(Term(loss, name, f"{name} {loader} {loss}") for loss in losses),
            tuple(Term(metric, name, f"{name} {loader} {metric}") for metric in (others or {}).get("metrics", ())),
        )
        for name, loader in pairs
    }
    trained = tuple(name for name in pipelines if name not in validation)
    return Session(
        models=models,
        optimizers=optimizers,
        loaders=loaders,
        losses=losses,
        processors=processors,
        graphs={name: Graph((name,), ("in",), {name: ("in",)}) for name in processors},
        pipelines=pipelines,
        stages=[Stage(trained, validation, EpochsCompleted(epochs))],
        options=Options(**options),
        **(others or {}),
    )


def labelled(count: int) -> TensorDataset:
    """Points and a class of each."""
    draw = torch.Generator().manual_seed(0)
    return TensorDataset(torch.rand(count, 4, generator=draw), torch.randint(0, 3, (count,), generator=draw))


def classifier(
    model: nn.Module, data: Any, sizes: tuple[int, ...] = (4, 4), *, epochs: int = 2, others: Any = None, **options: Any
) -> Session:
    """A session of one model that learns classes; `sizes`: of a batch, in training and, if given, in validation."""
    val = {"val": Loader(data, sizes[1], shuffle=False)} if sizes[1:] else {}
    return Session(
        models={"net": model},
        optimizers={"sgd": torch.optim.SGD(model.parameters(), 0.1)},
        loaders={"train": Loader(data, sizes[0]), **val},
        losses={"loss": nn.CrossEntropyLoss()},
        stages=[Stage(("train",), tuple(val), EpochsCompleted(epochs))],
        options=Options(**options),
        **(others or {}),
    )


def train(one: Session) -> list[Any]:
    return list(one.run())


def weights(model: nn.Module) -> list[Tensor]:
    return [one.detach().clone() for one in model.state_dict().values()]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int = 2, count: int = 20) -> None:
    for _ in range(epochs):
        for x, y in batches(count):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

"""What a session is made of: plain descriptions, the same whether a config file or Python wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Frame = dict[str, Any]  # the named columns of a batch


@dataclass(frozen=True)
class Loader:
    """Batches of a dataset, in an order that depends on nothing but the seed and the epoch."""

    dataset: Any
    batch_size: int = 1
    shuffle: bool = True
    collate: Callable[[list[Any]], Any] | None = None  # torch's own where None
    drop_last: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)  # num_workers, pin_memory, …: for torch's DataLoader


@dataclass(frozen=True)
class Node:
    """One model in a processor."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optimizer: str | None = None  # without one it is frozen here, though gradients pass through it
    alias: str = ""  # what adapters call it; the model's name where empty


@dataclass(frozen=True)
class Processor:
    """Models that run one after the other on one frame."""

    nodes: tuple[Node, ...]
    input_adapter: Callable[[Frame], Mapping[str, Frame]] | None = None  # frame -> {node: {tensor: value}}
    output_adapter: Callable[[Frame], Frame] | None = None
    device: str | None = None  # the session's where None


@dataclass(frozen=True)
class Graph:
    """Processors, and which frames flow into each."""

    processors: tuple[str, ...]  # in an order in which each comes after its sources
    ports: tuple[str, ...]  # where batches enter
    edges: Mapping[str, tuple[str, ...]]  # processor -> ports and processors; several are joined along the batch


@dataclass(frozen=True)
class Input:
    """A loader at a port of a graph."""

    loader: str
    names: tuple[str, ...]  # of the columns of a batch
    port: str = ""  # the graph's only one where empty


@dataclass(frozen=True)
class Term:
    """A loss or a metric where a pipeline uses it."""

    name: str  # in the session's losses or metrics
    node: str  # the processor whose frame it reads
    shown: str  # its column
    weight: float = 1.0


@dataclass(frozen=True)
class Pipeline:
    """Data through a graph to losses: one update for each batch."""

    graph: str
    inputs: tuple[Input, ...]
    losses: tuple[Term, ...] = ()
    metrics: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Measure:
    """A loss or a metric: a function of columns of a frame."""

    function: Any  # (*values) -> a number; or a metric with update, compute and reset
    inputs: tuple[str, ...]
    transform: Callable[..., Any] | None = None  # (*columns) -> values
    items: str = ""  # the column that counts its items, lengths or a mask; the batch's samples where empty


@dataclass(frozen=True)
class DebugPipeline:
    """A few batches now and then whose outputs go somewhere to be looked at."""

    graph: str
    inputs: tuple[Input, ...]
    iterations: int = 1
    interval: int = 1  # epochs between two looks
    keys: tuple[str, ...] = ("y_hat",)
    postprocessor: Callable[..., Any] | None = None
    output_device: Callable[..., Any] = print


@dataclass(frozen=True)
class Stage:
    """What is trained and evaluated until a condition holds."""

    training: tuple[str, ...]
    validation: tuple[str, ...] = ()
    stop: Any = None  # is_met(rows) -> bool; EpochsCompleted(1) where None
    debug: tuple[str, ...] = ()
    eval_steps: int | Mapping[str, int] | None = None  # batches, of each pipeline or of one; all where None


@dataclass(frozen=True)
class Schedule:
    """A learning-rate scheduler, and when it steps."""

    scheduler: Any
    every: str = "epoch"  # or "step"
    monitor: str = ""  # the column that ReduceLROnPlateau looks at


@dataclass(frozen=True)
class Clip:
    """How the gradients of a model are clipped before an update."""

    model: str
    value: float | None = None
    norm: float | None = None


@dataclass(frozen=True)
class Options:
    """How a session trains."""

    seed: int | None = 0
    device: str = "cpu"  # or "cuda", "auto"
    autocast: str = ""  # "bfloat16" or "float16"
    accumulate: int = 1  # batches to one update
    ema: float = 0.0  # 0.999: keep an average of the weights, used in evaluation
    deterministic: bool = False
    compile: bool = False
    keep_last: int = 2
    keep_best: str = (
        ""  # the column whose best checkpoint is kept; "-x" where more is better and no acc, f1 or the like
    )
    checkpoint_secs: float = 60.0  # at most so much work is lost
    checkpoint_steps: int | None = None
    limit_secs: float | None = None
    steps_csv: int = 0  # write a row to steps.csv every so many steps
    profile: Mapping[str, Any] | None = None
    writers: Sequence[str] = ()  # "tensorboard", "wandb"
    watch: Mapping[str, Any] | None = None  # {"every": 20, "stop_on": ["nan_inf"]}: look at the models from outside
    capture: Mapping[str, Any] | None = None  # {"layers": [...], "every": 100}: keep values of layers in captures/
    studio: bool = True  # let a studio look on and take control, where `torcheer train` runs the session

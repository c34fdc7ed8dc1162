"""The parts of a session as plain dataclasses, the same for a config file and for Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torcheer.errors import BadArgument

Frame = dict[str, Any]  # the named columns of a batch


class _Part:
    """Refuses a single thing where a field is a tuple: of a text, each letter would be taken for a name."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # type: ignore[arg-type]  # its subclasses are dataclasses
            kind, value = str(entry.type), getattr(self, entry.name)
            if kind.startswith("tuple["):
                self._check_tuple(entry.name, value)
            elif "tuple[" in kind and isinstance(value, Mapping):
                for key, item in value.items():
                    self._check_tuple(f"{entry.name}[{key!r}]", item)

    def _check_tuple(self, name: str, value: Any) -> None:
        if isinstance(value, str) or not isinstance(value, Iterable):
            shown = repr(value) if isinstance(value, str) else f"{type(value).__name__}(…)"
            raise BadArgument(f"{type(self).__name__}: {name} is a tuple, also of one: ({shown},) instead of {shown}")


@dataclass(frozen=True)
class Loader:
    """Batches of a dataset, in an order that depends only on the seed and the epoch."""

    dataset: Any  # anything with samples: a torch Dataset, a list, an iterable
    batch_size: int = 1  # samples in a batch
    shuffle: bool = True  # another order in each epoch
    collate: Callable[[list[Any]], Any] | None = None  # None: torch's default_collate
    drop_last: bool = False  # leave out the last batch where it is smaller
    options: Mapping[str, Any] = field(default_factory=dict)  # passed to torch's DataLoader: num_workers, pin_memory, …


@dataclass(frozen=True)
class Node(_Part):
    """One model in a processor."""

    model: str  # in the session's models
    inputs: tuple[str, ...]  # columns that forward is called with
    outputs: tuple[str, ...]  # names of what forward returns
    optimizer: str | None = None  # None: frozen here, though gradients pass through it
    alias: str = ""  # its name in adapters; empty: the model's name
    ignores_rest: bool = False  # ignore what forward returns beyond the named outputs, instead of raising


@dataclass(frozen=True)
class Processor(_Part):
    """Models that run in sequence on one frame."""

    nodes: tuple[Node, ...]  # in order of execution
    input_adapter: Callable[[Frame], Mapping[str, Frame]] | None = None  # frame -> {node: {tensor: value}}
    output_adapter: Callable[[Frame], Frame] | None = None  # changes the frame after the models
    device: str | None = None  # None: the session's


@dataclass(frozen=True)
class Graph(_Part):
    """Processors, and the sources of each."""

    processors: tuple[str, ...]  # in topological order
    ports: tuple[str, ...]  # where batches enter
    edges: Mapping[str, tuple[str, ...]]  # processor -> its source ports and processors; several are concatenated


@dataclass(frozen=True)
class Input(_Part):
    """A loader at a port of a graph."""

    loader: str  # in the session's loaders
    names: tuple[str, ...]  # of the columns of a batch
    port: str = ""  # empty: the graph's only port


@dataclass(frozen=True)
class Term:
    """A use of a loss or metric in a pipeline."""

    name: str  # in the session's losses or metrics
    node: str  # the processor whose frame it reads
    shown: str  # name of its column
    weight: float = 1.0  # in the sum of a pipeline's losses


@dataclass(frozen=True)
class Pipeline(_Part):
    """Data, a graph and losses: one update for each batch."""

    graph: str  # in the session's graphs
    inputs: tuple[Input, ...]  # loaders that feed its ports
    losses: tuple[Term, ...] = ()  # their weighted sum is minimised
    metrics: tuple[Term, ...] = ()  # computed beside them


@dataclass(frozen=True)
class Measure(_Part):
    """A loss or a metric: a function of columns of a frame."""

    function: Any  # (*values) -> a number; or a metric with update, compute and reset
    inputs: tuple[str, ...]  # columns that it reads, predictions first
    transform: Callable[..., Any] | None = None  # (*columns) -> values
    items: str = ""  # column with lengths or a mask that counts the items; empty: samples


@dataclass(frozen=True)
class DebugPipeline(_Part):
    """A few batches every n epochs whose outputs go to an output device."""

    graph: str  # in the session's graphs
    inputs: tuple[Input, ...]  # loaders that feed its ports
    iterations: int = 1  # batches each time
    interval: int = 1  # in epochs
    keys: tuple[str, ...] = ("y_hat",)  # columns that are handed on
    postprocessor: Callable[..., Any] | None = None  # makes something readable of them
    output_device: Callable[..., Any] = print  # called with the results


@dataclass(frozen=True)
class Stage(_Part):
    """Pipelines that are trained and validated until a stop condition holds."""

    training: tuple[str, ...]  # pipelines that are trained, a batch of each in turn
    validation: tuple[str, ...] = ()  # pipelines that are evaluated after each epoch
    stop: Any = None  # is_met(rows) -> bool, or a function of (epoch, history); None: EpochsCompleted(1)
    debug: tuple[str, ...] = ()  # debug pipelines that run after an epoch
    # Batches of each pipeline, or by pipeline; a float is a share of them; None: all
    eval_steps: float | Mapping[str, float] | None = None
    # What runs before each epoch, in order: functions of (session, epoch), and names of pipelines that only run forward
    before_epoch: tuple[str | Callable[[Any, int], object], ...] = ()


@dataclass(frozen=True)
class Schedule:
    """A learning-rate scheduler, and when it steps."""

    scheduler: Any  # of torch.optim.lr_scheduler
    every: str = "epoch"  # or "step"
    monitor: str = ""  # the column that ReduceLROnPlateau monitors


@dataclass(frozen=True)
class Clip:
    """Clipping of a model's gradients before an update."""

    model: str  # in the session's models
    value: float | None = None  # largest absolute value of an element
    norm: float | None = None  # largest norm of all gradients together


@dataclass(frozen=True)
class Options:
    """Options of a session's training."""

    seed: int | None = 0  # of weights, order and augmentation; None: not seeded
    device: str = "cpu"  # or "cuda", "auto"
    autocast: str = ""  # "bfloat16" or "float16"
    accumulate: int = 1  # batches per update
    activation_checkpointing: Any = None  # layers whose activations are computed again, not kept: ["blocks.*"]
    # Layers that are not trained, and stay in evaluation mode: ["conv1", "layer*"]; of several models by model.
    freeze: Any = None
    # How models lie on several ranks; None: each has all of them (DDP). {"shard": ["blocks.*"]} is FSDP2,
    # {"tensor": {"size": 2, "plan": {"*.up": "colwise", "*.down": "rowwise"}}} splits layers.
    parallel: Mapping[str, Any] | None = None
    ema: float = 0.0  # decay of the average of weights used in evaluation, such as 0.999; 0: none
    deterministic: bool = False  # torch refuses what is not
    compile: bool = False  # the models, by torch.compile
    keep_last: int = 2  # newest checkpoints that are kept
    # The column whose best checkpoint is kept, the first of equally good ones; "-x" where more is better and the name
    # does not say so (acc, f1 do).
    keep_best: str = ""
    copy_to: str = ""  # a URL, to which log and checkpoints are copied with every checkpoint: "s3://bucket/run"
    checkpoint_secs: float = 60.0  # a crash loses at most this much work
    checkpoint_steps: int | None = None  # updates between two checkpoints, besides checkpoint_secs
    limit_secs: float | None = None  # save and stop after so many seconds
    steps_csv: int = 0  # steps between two rows of steps.csv; 0: none
    profile: Mapping[str, Any] | None = None  # {"wait": 5, "active": 3}: record steps with torch.profiler
    writers: Sequence[str] = ()  # "tensorboard", "wandb"
    watch: Mapping[str, Any] | None = None  # {"every": 20, "stop_on": ["nan_inf"]}: run tl.watch
    capture: Mapping[str, Any] | None = None  # {"layers": [...], "every": 100}: save layer values in captures/
    # Samples that are not trained with: their indices in the dataset of the training loader, or of each loader by name.
    exclude_samples: Sequence[int] | Mapping[str, Sequence[int]] = ()
    notify: Any = None  # a command or address that hears of alerts, a crash and the end: {"url": "$HOOK"}
    system_secs: float = 5.0  # between two rows of the log about CPU, memory and GPUs; 0: none
    studio: bool = True  # let a studio view and control the session under `torcheer train`


@dataclass
class Place:
    """Position of a session in its training."""

    stage: int = 0
    epoch: int = 0  # completed epochs, across stages
    round: int = 0  # completed rounds of the current epoch
    step: int = 0  # completed optimizer updates
    ended: list[str] = field(default_factory=list)  # pipelines whose data is exhausted in this epoch

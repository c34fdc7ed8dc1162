"""The parts of a session as plain dataclasses, the same for a config file and for Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torcheer.errors import BadArgument
from torcheer.public_names import PublicClass

Frame = dict[str, Any]  # the named columns of a batch


class _Part(metaclass=PublicClass):
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
class Loader(metaclass=PublicClass):
    """Batches of a dataset, in an order that depends only on the seed and the epoch.

    - `dataset`: anything with samples: a torch Dataset, a list, an iterable.
    - `batch_size`: samples in a batch; 1 by default.
    - `shuffle`: a different order in each epoch (the default); False: the dataset's order.
    - `collate`: makes a batch of a list of samples; None: torch's `default_collate`.
    - `drop_last`: leave out the last batch where it is smaller; by default it is kept.
    - `options`: passed on to torch's DataLoader: {"num_workers": 4, "pin_memory": True}; none by default.
    """

    dataset: Any
    batch_size: int = 1
    shuffle: bool = True
    collate: Callable[[list[Any]], Any] | None = None
    drop_last: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Node(_Part):
    """One model in a processor.

    - `model`: its name in the session's `models`.
    - `inputs`: names of the columns that forward is called with, in its order.
    - `outputs`: names for what forward returns, in its order.
    - `optimizer`: a name in the session's `optimizers`; None: frozen here, though gradients pass through it.
    - `alias`: its name in adapters; empty: the model's name.
    - `ignores_rest`: ignore what forward returns beyond the named outputs; by default that raises.
    """

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    optimizer: str | None = None
    alias: str = ""
    ignores_rest: bool = False


@dataclass(frozen=True)
class Processor(_Part):
    """Models that run in sequence on one frame.

    - `nodes`: the models, in order of execution.
    - `input_adapter`: a function from the frame to {node: {tensor: value}}; None: columns by their names.
    - `output_adapter`: a function that returns the frame changed, called after the models; None: as it is.
    - `device`: where it runs, such as "cuda:1"; None: the session's device.
    """

    nodes: tuple[Node, ...]
    input_adapter: Callable[[Frame], Mapping[str, Frame]] | None = None
    output_adapter: Callable[[Frame], Frame] | None = None
    device: str | None = None


@dataclass(frozen=True)
class Graph(_Part):
    """Processors, and the sources of each.

    - `processors`: their names, in topological order.
    - `ports`: names of the places where batches enter.
    - `edges`: for each processor its source ports and processors; several are concatenated.
    """

    processors: tuple[str, ...]
    ports: tuple[str, ...]
    edges: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Input(_Part):
    """A loader at a port of a graph.

    - `loader`: its name in the session's `loaders`.
    - `names`: names for the columns of a batch, in its order.
    - `port`: the port of the graph that it feeds; empty: the only one.
    """

    loader: str
    names: tuple[str, ...]
    port: str = ""


@dataclass(frozen=True)
class Term(metaclass=PublicClass):
    """A use of a loss or metric in a pipeline.

    - `name`: a name in the session's `losses` or `metrics`.
    - `node`: the processor whose frame it reads.
    - `shown`: the name of its column in tables and plots.
    - `weight`: its factor in the sum of a pipeline's losses; 1.0 by default.
    """

    name: str
    node: str
    shown: str
    weight: float = 1.0


@dataclass(frozen=True)
class Pipeline(_Part):
    """Data, a graph and losses: one update for each batch.

    - `graph`: its name in the session's `graphs`.
    - `inputs`: the loaders that feed its ports.
    - `losses`: their weighted sum is minimised; none for a pipeline that only evaluates.
    - `metrics`: computed beside the losses; none by default.
    """

    graph: str
    inputs: tuple[Input, ...]
    losses: tuple[Term, ...] = ()
    metrics: tuple[Term, ...] = ()


@dataclass(frozen=True)
class Measure(_Part):
    """A loss or a metric: a function of columns of a frame.

    - `function`: a function of the values that returns a number; or a metric with `update`, `compute` and `reset`.
    - `inputs`: the columns that it reads, predictions first: ("y_hat", "y").
    - `transform`: a function from these columns to the values that `function` takes; None: the columns themselves.
    - `items`: a column with lengths or a mask, whose sum counts the items of a batch when batches are averaged; empty:
      samples are counted.
    """

    function: Any
    inputs: tuple[str, ...]
    transform: Callable[..., Any] | None = None
    items: str = ""


@dataclass(frozen=True)
class DebugPipeline(_Part):
    """A few batches every n epochs whose outputs go to an output device.

    - `graph`: its name in the session's `graphs`.
    - `inputs`: the loaders that feed its ports.
    - `iterations`: batches each time; 1 by default.
    - `interval`: epochs between two times; 1 by default.
    - `keys`: the columns that are handed on; ("y_hat",) by default.
    - `postprocessor`: a function of these columns that makes something readable; None: as they are.
    - `output_device`: called with the results; `print` by default.
    """

    graph: str
    inputs: tuple[Input, ...]
    iterations: int = 1
    interval: int = 1
    keys: tuple[str, ...] = ("y_hat",)
    postprocessor: Callable[..., Any] | None = None
    output_device: Callable[..., Any] = print


@dataclass(frozen=True)
class Stage(_Part):
    """Pipelines that are trained and validated until a stop condition holds.

    - `training`: names of the pipelines that are trained, a batch of each in turn.
    - `validation`: names of the pipelines that are evaluated after each epoch; none by default.
    - `stop`: ends the stage after an epoch: an `EarlyStopping`, an `EpochsCompleted`, anything with `is_met(rows)`, or
      a function of (epoch, history) that returns whether to stop; None: after one epoch.
    - `debug`: names of the debug pipelines that run after an epoch; none by default.
    - `eval_steps`: batches that are evaluated of each validation pipeline, or a dict of them by pipeline; a float is a
      share of all (0.1 is a tenth); None: all.
    - `before_epoch`: what runs before each epoch, in order: functions of (session, epoch), and names of pipelines that
      only run forward; nothing by default.
    """

    training: tuple[str, ...]
    validation: tuple[str, ...] = ()
    stop: Any = None
    debug: tuple[str, ...] = ()
    eval_steps: float | Mapping[str, float] | None = None
    before_epoch: tuple[str | Callable[[Any, int], object], ...] = ()


@dataclass(frozen=True)
class Schedule(metaclass=PublicClass):
    """A learning-rate scheduler, and when it steps.

    - `scheduler`: a scheduler of torch.optim.lr_scheduler, made for the optimizer.
    - `every`: "epoch" (the default) or "step": when it steps.
    - `monitor`: the column that a ReduceLROnPlateau is given, such as "val loss"; other schedulers need none.
    """

    scheduler: Any
    every: str = "epoch"
    monitor: str = ""


@dataclass(frozen=True)
class Clip(metaclass=PublicClass):
    """Clipping of a model's gradients before an update.

    - `model`: its name in the session's `models`.
    - `value`: the largest absolute value of an element of a gradient; None: not clipped by value.
    - `norm`: the largest norm of all gradients together; None: not clipped by norm.
    """

    model: str
    value: float | None = None
    norm: float | None = None


@dataclass(frozen=True)
class Options(metaclass=PublicClass):
    """Options of a session's training.

    - `seed`: of weights, order and augmentation; None: not seeded.
    - `device`: "cpu" (the default), "cuda", "cuda:1", or "auto": a GPU where there is one.
    - `autocast`: "bfloat16" or "float16" (with a loss scale); empty: the models' own dtype.
    - `accumulate`: batches per update; 1 by default.
    - `activation_checkpointing`: layers whose activations are computed again in backward, not kept: ["blocks.*"]; None:
      no layers.
    - `freeze`: layers that are not trained, and stay in evaluation mode: ["conv1", "layer*"], or a dict of them by
      model; None: no layers.
    - `parallel`: how models lie on several ranks: {"shard": ["blocks.*"]} is FSDP2, {"tensor": {"size": 2, "plan":
      {"*.up": "colwise", "*.down": "rowwise"}}} splits layers; None: each rank has all (DDP).
    - `ema`: the decay of an average of the weights, which is used in evaluation: 0.999; 0: no average.
    - `deterministic`: let torch raise where an operation is not deterministic; off by default.
    - `compile`: compile the models with torch.compile; off by default.
    - `keep_last`: how many of the newest checkpoints are kept; 2 by default.
    - `keep_best`: the column whose best checkpoint is kept, too, the first of equally good ones; "-x" where more is
      better and the name does not say so (acc, f1 do); empty: none is.
    - `copy_to`: a URL, to which log and checkpoints are copied with every checkpoint: "s3://bucket/run"; empty:
      nowhere.
    - `checkpoint_secs`: seconds between two checkpoints: a crash loses at most about this much work; 60 by default.
    - `checkpoint_steps`: updates between two checkpoints, besides `checkpoint_secs`; None: by time alone.
    - `limit_secs`: save and stop after so many seconds; None: no limit.
    - `steps_csv`: steps between two rows of steps.csv; 0: no such file.
    - `profile`: record steps with torch.profiler: {"wait": 5, "active": 3}; None: none.
    - `writers`: trackers that get the same numbers: "tensorboard", "wandb", "mlflow"; none by default.
    - `watch`: run `tl.watch` with these settings: {"every": 20, "stop_on": ["nan_inf"]}; None: no watch.
    - `capture`: save values of layers in captures/: {"layers": ["features.*"], "every": 100}; None: none.
    - `exclude_samples`: samples that are not trained with: their indices in the dataset of the training loader, or a
      dict of them by loader; none by default.
    - `notify`: a command or address that gets alerts, a crash and the end: {"url": "$HOOK"}; None: none.
    - `system_secs`: seconds between two rows of the log about CPU, memory and GPUs; 5 by default, 0: none.
    - `studio`: let a studio view and control the session under `torcheer train`; True by default.
    """

    seed: int | None = 0
    device: str = "cpu"
    autocast: str = ""
    accumulate: int = 1
    activation_checkpointing: Any = None
    freeze: Any = None
    parallel: Mapping[str, Any] | None = None
    ema: float = 0.0
    deterministic: bool = False
    compile: bool = False
    keep_last: int = 2
    keep_best: str = ""
    copy_to: str = ""
    checkpoint_secs: float = 60.0
    checkpoint_steps: int | None = None
    limit_secs: float | None = None
    steps_csv: int = 0
    profile: Mapping[str, Any] | None = None
    writers: Sequence[str] = ()
    watch: Mapping[str, Any] | None = None
    capture: Mapping[str, Any] | None = None
    exclude_samples: Sequence[int] | Mapping[str, Sequence[int]] = ()
    notify: Any = None
    system_secs: float = 5.0
    studio: bool = True


@dataclass
class Place:
    """Position of a session in its training."""

    stage: int = 0
    epoch: int = 0  # completed epochs, across stages
    round: int = 0  # completed rounds of the current epoch
    step: int = 0  # completed optimizer updates
    ended: list[str] = field(default_factory=list)  # pipelines whose data is exhausted in this epoch

"""Parts of a session before it trains: those that were omitted are filled in, those of its stages checked.

In the simplest session there is one model, and loaders give (x, y).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from torcheer.errors import BadArgument
from torcheer.terminal import did_you_mean
from torcheer.training.session_parts import Graph, Input, Loader, Measure, Node, Pipeline, Processor, Stage, Term
from torcheer.training.stop_conditions import EarlyStopping

COLUMNS = ("x", "y")
OUTPUT = "y_hat"
_LOADER_OPTIONS = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)

Part = TypeVar("Part")

if TYPE_CHECKING:
    from torcheer.training.loop.graph_forward import BoundMeasure
    from torcheer.training.session import Session


def lookup(table: Mapping[str, Any], name: str, group: str) -> Any:
    """Return the entry of a name; raise with the nearest name where there is none."""
    if name not in table:
        names = ", ".join(table) or "none"
        raise BadArgument(f"there is no {name!r} among the {group}; there is {names}.{did_you_mean(name, table)}")
    return table[name]


def check_tables(**tables: Any) -> None:
    """Raise where a group of parts is none: a model in place of models by name."""
    for name, value in tables.items():
        if value is not None and not hasattr(value, "keys"):  # a ModuleDict has them
            raise BadArgument(f"{name} are given by name, as a dict: {name}={{'name': …}}, not {type(value).__name__}")


def as_list(parts: Any, kind: type[Part], name: str) -> list[Part]:
    """Return a list of parts; raise where they are not in one."""
    if not isinstance(parts, Sequence) or not all(isinstance(part, kind) for part in parts):
        raise BadArgument(f"{name} is a list of {kind.__name__}s, also of one: {name}=[{kind.__name__}(…)]")
    return list(parts)


def as_loader(source: Any, name: str) -> Loader:
    """Return a `Loader` as it is; convert torch's DataLoader to one."""
    if isinstance(source, Loader):
        return source
    if not isinstance(source, DataLoader):
        raise BadArgument(f"loaders: {name!r} is {type(source).__name__}; give a Loader, or torch's DataLoader")
    if source.batch_size is None:
        raise BadArgument(f"loaders: {name!r} has a batch sampler of its own; give a Loader with a batch_size")
    is_stream, sampler = isinstance(source.dataset, IterableDataset), source.sampler
    is_random = type(sampler) is RandomSampler and not sampler.replacement and len(sampler) == len(sampler.data_source)
    if not (is_stream or is_random or type(sampler) is SequentialSampler):
        raise BadArgument(
            f"loaders: {name!r} has a {type(sampler).__name__} of its own, whose place no checkpoint knows: have the "
            "dataset draw its samples, or give a Loader"
        )
    return Loader(
        source.dataset,
        source.batch_size,
        shuffle=is_random,
        collate=source.collate_fn,
        drop_last=source.drop_last,
        options={key: value for key in _LOADER_OPTIONS if (value := getattr(source, key, None)) is not None},
    )


def as_measure(measure: Any) -> Measure:
    """Wrap a loss or metric; a bare function takes the prediction and the target."""
    return measure if isinstance(measure, Measure) else Measure(measure, (OUTPUT, COLUMNS[1]))


def fill_in_parts(
    models: Mapping[str, Any],
    optimizers: Mapping[str, Any],
    loaders: Sequence[str],
    losses: Sequence[str],
    metrics: Sequence[str],
) -> dict[str, Any]:
    """Make the processors, graphs and pipelines of a session without any.

    Every loader feeds the model.
    """
    if len(models) != 1 or len(optimizers) != 1:
        raise BadArgument(
            f"a session of {len(models)} models and {len(optimizers)} optimizers needs its processors, graphs and "
            f"pipelines; with one of each they are filled in"
        )
    (model,), (optimizer,) = models, optimizers
    node = Node(model, COLUMNS[:1], (OUTPUT,), optimizer)
    return {
        "processors": {model: Processor((node,))},
        "graphs": {model: Graph((model,), ("batch",), {model: ("batch",)})},
        "pipelines": {name: _pipeline(model, name, name == loaders[0], losses, metrics) for name in loaders},
    }


def _pipeline(model: str, loader: str, is_trained: bool, losses: Sequence[str], metrics: Sequence[str]) -> Pipeline:
    def terms(names: Sequence[str]) -> tuple[Term, ...]:
        return tuple(Term(name, model, name if is_trained else f"{loader} {name}") for name in names)

    return Pipeline(model, (Input(loader, COLUMNS),), terms(losses), terms(metrics))


def single_stage(loaders: Sequence[str], stop: Any = None) -> list[Stage]:
    """Make one stage: the first loader trains, the others evaluate."""
    return [Stage(tuple(loaders[:1]), tuple(loaders[1:]), stop)]


def check_parts(session: Session) -> None:
    """Raise where parts of a session do not fit together."""
    for stage in session.stages:
        _check_stage(session, stage)
    _check_keep_best(session)
    for clip in session.clips:
        lookup(session.models, clip.model, "models")
    for node in (node for pipeline in session.runners for node in session.nodes_of(pipeline)):
        if node.optimizer is not None:
            lookup(session.optimizers, node.optimizer, "optimizers")
    for name, optimizer in session.optimizers.items():
        _check_step(name, optimizer)
    if session.is_main and not is_there(session):
        refuse_wiring(session)  # a run that is there can be evaluated as it is; its training refuses


def is_there(session: Session) -> bool:
    """Whether the directory has checkpoints of this run already.

    For the first rank only: what another looks for before the first has made it, its storage may call missing for long.
    """
    return session.directory is not None and any((session.directory / "checkpoints").glob("*"))


def refuse_wiring(session: Session) -> None:
    """Raise where a session trains nothing, or the wrong thing."""
    # What runs before an epoch may unfreeze layers.
    may_thaw = {"nothing trainable"} if session.changes_data else set()
    errors = [each for each in session.wiring() if each.severity == "error" and each.kind not in may_thaw]
    if errors:
        raise BadArgument("\n".join(each.message for each in errors))


def remarks(session: Session) -> Iterator[str]:
    """Yield what trains otherwise than its author may think, to be said once."""
    for finding in session.wiring():
        if finding.severity == "warning":
            yield finding.message
    parts = session.options.accumulate * (1 if session.ranks is None else session.ranks.share.count)
    if parts == 1:
        return
    trained = (session.runners[name] for stage in session.stages for name in stage.training)
    for measure in dict.fromkeys(measure for runner in trained for _, measure, _ in runner.losses):
        yield from _sum_remarks(measure, parts)


def _sum_remarks(measure: BoundMeasure, parts: int) -> Iterator[str]:
    """Yield a remark on a loss whose mean over parts of a batch is not that of the batch."""
    loss = measure.function
    if isinstance(loss, partial):
        kind, settings = getattr(loss.func, "__name__", ""), loss.keywords
    else:
        kind, settings = type(loss).__name__, {key: getattr(loss, key, None) for key in ("reduction", "weight")}
    takes_mean = f"an update takes the mean of {parts} parts (accumulated batches, ranks) by their samples"
    if settings.get("reduction") == "sum":
        yield (
            f"the loss {measure.name!r} is a sum (reduction='sum'), and {takes_mean}: its gradient is 1/{parts} of the "
            f"large batch's. With reduction='mean' they are the same; or multiply the learning rate by {parts}"
        )
    elif settings.get("weight") is not None and kind in _WEIGHTED_MEANS and not measure.counts_by:
        yield (
            f"the loss {measure.name!r} weights classes (weight=…), and {takes_mean}, not by the weights of their "
            f"classes: its gradient differs from the large batch's. It is the same with Measure(…, items=COLUMN), a "
            f"column with the weight of each sample"
        )


_WEIGHTED_MEANS = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")  # they divide by the sum of weights


def _check_keep_best(session: Session) -> None:
    column = session.options.keep_best.removeprefix("-")
    columns = list(dict.fromkeys(chain(*(_columns(session, stage) for stage in session.stages))))
    if column and column not in columns:
        raise BadArgument(
            f"keep_best names {column!r}, and the stages have only {', '.join(columns)}.{did_you_mean(column, columns)}"
        )


def _check_step(name: str, optimizer: Any) -> None:
    """Raise where an optimizer is none, or its step needs a closure."""
    if not hasattr(type(optimizer), "step"):
        raise BadArgument(f"optimizer {name!r} is a {type(optimizer).__name__}, which has no step: give a torch.optim")
    try:
        inspect.signature(type(optimizer).step).bind(optimizer)  # that of the object may be wrapped by a scheduler
    except TypeError as error:
        raise BadArgument(
            f"optimizer {name!r} ({type(optimizer).__name__}): its step cannot be called without arguments ({error}). "
            f"It runs the model several times for an update, and a session once for a batch: use another optimizer, "
            f"such as AdamW, or write the loop by hand"
        ) from None
    except ValueError:  # no signature
        return


def _columns(session: Session, stage: Stage) -> list[str]:
    """The columns of a stage, those of training first."""
    names = [*stage.training, *(name for name in stage.validation if name not in stage.training)]
    return [term.shown for name in names for term, _ in lookup(session.runners, name, "pipelines").meters()]


def _check_stage(session: Session, stage: Stage) -> None:
    """Raise where a stage names an unknown part, or two of its columns have the same name."""
    columns = _columns(session, stage)
    for column in columns:
        if columns.count(column) > 1 or column == "epoch":
            names = ", ".join(dict.fromkeys((*stage.training, *stage.validation)))
            raise BadArgument(f"two columns of the pipelines {names} are called {column!r}: rename one")
    monitor = getattr(stage.stop, "monitor", None) if isinstance(stage.stop, EarlyStopping) else None
    if monitor is not None and monitor not in columns:
        near = did_you_mean(monitor, columns)
        raise BadArgument(f"EarlyStopping watches {monitor!r}, and the stage has only {', '.join(columns)}.{near}")
    for name in stage.eval_steps if isinstance(stage.eval_steps, Mapping) else ():
        lookup(dict.fromkeys(stage.validation), name, "validation pipelines of its stage, for eval_steps")
    for name in stage.debug:
        lookup(session.debug_pipelines, name, "debug pipelines")
    for part in stage.before_epoch:
        if isinstance(part, str):
            lookup(session.runners, part, "pipelines")
        elif not callable(part):
            message = "what runs before an epoch is the name of a pipeline, or is called with the session and the epoch"
            raise BadArgument(f"before_epoch: {message}; this is {type(part).__name__}")
    for name in (node.optimizer for pipeline in stage.training for node in session.nodes_of(pipeline)):
        if name is None or name not in session.schedules or not (monitor := session.schedules[name].monitor):
            continue
        if monitor not in columns:
            raise BadArgument(
                f"the schedule of {name!r} looks at {monitor!r}, and a stage that trains it has only "
                f"{', '.join(columns)}.{did_you_mean(monitor, columns)}"
            )

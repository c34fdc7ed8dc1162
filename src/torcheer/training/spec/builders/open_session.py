"""Sessions in run directories.

Begin one from a description, reopen it, and read its inference config.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torcheer.config import Config
from torcheer.errors import BadArgument
from torcheer.ranks import is_main
from torcheer.training.output_devices import Printer
from torcheer.training.postprocessors import ClassNames
from torcheer.training.spec.builders.build_session import Builder, Built, assemble
from torcheer.training.spec.builders.static_state import write_static
from torcheer.training.spec.read.config_merge import merged, read_spec
from torcheer.training.spec.read.description import FILE, PIPELINES, Spec, part

Folder = str | os.PathLike[str]


def begin(
    spec: Spec,
    directory: Folder | None = None,
    *,
    trusted: Iterable[str] = (),
    folder: Folder | None = None,
) -> Built:
    """Build a session; save its description and static state in its `session_dir`."""
    home = Path(spec.data["session_dir"] if directory is None else directory)
    if is_main() and (home / FILE).exists():
        raise BadArgument(f"Session already exists under {home}")
    built = assemble(spec, trusted=trusted, folder=folder, directory=home, is_new=True)
    if built.session.is_main:
        write_static(home, built.static)
        built.spec.save(home)  # last: spec.json is what makes it a session
    return built


def reopen(
    directory: Folder,
    over: Config | None = None,
    *,
    changes: Iterable[str] = (),
    trusted: Iterable[str] = (),
    folder: Folder | None = None,
) -> Built:
    """Rebuild the session of a run directory, with an evaluation or inference config over it.

    `changes` are `key.path=value` arguments of the command line.
    """
    home = Path(directory)
    spec = read_spec(home, changes) if over is None else merged(home, over)
    return assemble(spec, trusted=trusted, folder=folder, directory=home)


@dataclass(frozen=True)
class Inference:
    """Settings of an inference config beyond the session."""

    pipeline: str
    converters: Mapping[str, Callable[[str], Any] | None]  # port -> converter of an input to a sample; None: unchanged
    results: tuple[str, ...]
    post_processor: Callable[[Mapping[str, Any]], Any] | None
    output_device: Callable[[Mapping[str, Any]], Any]
    batch_size: int


def inference(built: Built) -> Inference:
    """Build the parts of an inference config; `built` is what `reopen` returned for it."""
    spec, data = built.spec, built.spec.data
    pipeline = data.get("inference_pipeline") or default_pipeline(built)
    builder = Builder(spec, built.finder, built.static)
    builder.parts = built.parts
    words = "it is called with the results"

    def make_part(key: str) -> Any:
        return builder.make((key,), data[key], key, must_be=callable, words=words) if key in data else None

    return Inference(
        pipeline,
        _converters(builder, pipeline),
        tuple(data.get("results", ("y_hat",))),
        make_part("post_processor") or _class_names(built, pipeline),
        make_part("output_device") or Printer(),
        data.get("batch_size", spec.habits.inference_batch),
    )


def _class_names(built: Built, pipeline: str) -> ClassNames | None:
    """Return what names classes, for people who read them, where the config's habit is not to print scores."""
    if "output_device" in built.spec.data or not built.spec.habits.names_classes:
        return None
    return ClassNames.of(built.session, pipeline)


def default_pipeline(built: Built) -> str:
    """Return the pipeline that inference runs where no config says it.

    That of validation, or the only one; else the one that makes the results. Several that make them in the same way
    are as good as one, as the two pipelines of a GAN with one generator. Or the first, by the config's habit.
    """
    runners, data = built.session.runners, built.spec.data
    if built.spec.habits.infers_by_first:
        first: str = next(iter(runners))
        return first
    validated = [name for stage in built.session.stages for name in stage.validation]
    if len(runners) == 1 or len(set(validated)) == 1:
        return (validated or list(runners))[0]
    results, ways = tuple(data.get("results", ("y_hat",))), dict[object, str]()
    for name, runner in runners.items():
        processors = [runner.processors[each] for each in runner.graph.processors]
        if set(results) <= {column for processor in processors for column in processor.outputs}:
            steps = [
                (node.model, node.inputs, node.outputs) for each in processors for node in each.making(results).steps
            ]
            ways.setdefault(str(steps), name)
    if len(ways) == 1:
        return next(iter(ways.values()))
    if not ways:
        made = {
            column: None
            for runner in runners.values()
            for each in runner.processors.values()
            for column in each.outputs
        }
        message = f"no pipeline makes {', '.join(results)}: say which columns are the answer, as infer: {{results: "
        raise built.spec.problem(("results",), f"{message}[{next(iter(made), 'y_hat')}]}}; there is {', '.join(made)}")
    message = f"several pipelines make {', '.join(results)}: say which one runs, as infer: {{pipeline: "
    raise built.spec.problem(("inference_pipeline",), f"{message}{next(iter(runners))}}}; one of {', '.join(runners)}")


def _converters(builder: Builder, pipeline: str) -> dict[str, Any]:
    data = builder.spec.data
    graph = part(data, PIPELINES)[pipeline]["graph"]
    ports = builder.parts.batch_graphs[graph].ports
    converters: dict[str, Any] = dict.fromkeys(ports)
    for number, meta in enumerate(data.get("inputs_meta", ())):
        port = meta.get("input_port", ports[min(number, len(ports) - 1)])
        if "input_converter" in meta:
            path = ("inputs_meta", number, "input_converter")
            words = "an input converter is called with an input"
            converters[port] = builder.make(
                path, meta["input_converter"], "input_converter", must_be=callable, words=words
            )
    return converters

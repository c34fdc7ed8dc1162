"""Choose the data a preprocessor is fitted on.

What `fit` names, else the training samples before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from torcheer.training.datasets import Merged, Split
from torcheer.training.preprocessors import ValuePreprocessor
from torcheer.training.spec.checks.references import split_part
from torcheer.training.spec.read.description import PIPELINES, STAGES, Definition, definitions, part

if TYPE_CHECKING:
    from torcheer.training.spec.builders.build_session import Builder

OFF = (None, "", "none")  # values of `fit` that turn fitting off
ADVICE = "say fit: NAME of the data to fit it on, or fit: none"


def needs_fit(preprocessor: Any) -> bool:
    """Return whether a preprocessor must be fitted; its attribute `needs_fit` may say so."""
    return callable(getattr(preprocessor, "fit", None)) and bool(getattr(preprocessor, "needs_fit", True))


class PreprocessorFlow:
    """The preprocessors that the training data of a description passes through."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.datasets = {definition.name: definition for definition in definitions(data, "datasets")}
        self.splits = {definition.name: definition for definition in definitions(data, "splits")}
        loaders = {definition.name: definition.spec.get("dataset") for definition in definitions(data, "data_loaders")}
        pipelines = part(data, PIPELINES) or {}
        trained = [name for stage in part(data, STAGES) or () for name in stage.get("training_pipelines", ())]
        inputs = [entry for name in trained for entry in pipelines.get(name, {}).get("input_injector", ())]
        self.trained = list(dict.fromkeys(filter(None, (loaders.get(entry.get("data_loader")) for entry in inputs))))

    def sources(self, preprocessor: str) -> list[str]:
        """Return the training data that passes through a preprocessor.

        Where none does, the first of all.
        """
        return [name for name in self.trained if self.passes(name, preprocessor)] or self.trained[:1]

    def passes(self, name: str, preprocessor: str) -> bool:
        """Return whether data passes through a preprocessor, directly or in its sources."""
        return bool(self.positions(name, preprocessor)) or any(
            self.passes(inner, preprocessor) for inner in self.sources_of(name)
        )

    def positions(self, name: str, preprocessor: str) -> list[Any]:
        """Return the positions, numbers or keys, to which a dataset applies a preprocessor."""
        dataset = self.datasets.get(name)
        names = dataset.spec.get("preprocessors", ()) if dataset is not None else ()
        pairs = names.items() if isinstance(names, dict) else enumerate(names)
        return [place for place, candidate in pairs if candidate == preprocessor]

    def sources_of(self, name: str) -> list[str]:
        """Return the datasets and splits that a dataset is made of."""
        dataset = self.datasets.get(name)
        if dataset is None:
            split = self.splits.get(split_part(name)[0])
            return [split.spec["dataset_name"]] if split is not None else []
        return [*([dataset.spec["link"]] if "link" in dataset.spec else ()), *dataset.spec.get("merge", ())]


class ColumnDataset(Dataset[Any]):
    """Values at some positions of a dataset's samples, as one sequence."""

    def __init__(self, dataset: Any, places: list[Any]) -> None:
        self._dataset, self._places = dataset, places

    def __len__(self) -> int:
        return len(self._dataset) * len(self._places)

    def __getitem__(self, index: int) -> Any:
        number, place = divmod(index, len(self._places))
        return self._dataset[number][self._places[place]]


def fit(builder: Builder, definition: Definition, preprocessor: Any) -> None:
    """Fit a preprocessor whose definition has no `fit`."""
    flow = PreprocessorFlow(builder.spec.data)
    sources = flow.sources(definition.name)
    if not sources:
        raise builder.spec.problem(
            definition.path, f"nothing is trained that {definition.name} could be fitted on: {ADVICE}"
        )
    views = [_samples_before(builder, flow, name, definition) for name in sources]
    stream = next((name for name, view in zip(sources, views) if not _has_length(view)), None)
    if stream is not None:
        message = f"{definition.name} would be fitted on {stream}, a stream, which may have no end: {ADVICE}"
        raise builder.spec.problem(definition.path, message)
    data = views[0] if len(views) == 1 else Merged(*views)
    places = next(filter(None, _positions(flow, sources, definition.name)), [])
    if (
        isinstance(preprocessor, ValuePreprocessor)
        and getattr(preprocessor, "column", 0) is None
        and places
        and len(data)
    ):
        data = ColumnDataset(data, places) if isinstance(data[0], (tuple, list, dict)) else data
    try:
        preprocessor.fit(data)
    except Exception as error:  # user code
        reason = f"{type(error).__name__}: {error}".rstrip(": .")
        message = f"fitting it on the training samples of {' and '.join(sources)} failed with {reason}: {ADVICE}"
        raise builder.spec.problem(definition.path, message) from error
    builder.notes.append(f"{definition.name} was fitted on the training samples of {' and '.join(sources)}")


def _positions(flow: PreprocessorFlow, names: list[str], preprocessor: str) -> Iterator[list[Any]]:
    for name in names:
        yield flow.positions(name, preprocessor)
        yield from _positions(flow, flow.sources_of(name), preprocessor)


def _samples_before(builder: Builder, flow: PreprocessorFlow, name: str, definition: Definition) -> Any:
    """Return the samples as they reach a preprocessor.

    Unchanged where they do not pass through it.
    """
    inner = [below for below in flow.sources_of(name) if flow.passes(below, definition.name)]
    if not inner:
        return builder.base(flow.datasets[name]) if flow.positions(name, definition.name) else builder.data(name)
    if name in flow.datasets:
        views = [_samples_before(builder, flow, below, definition) for below in inner]
        return views[0] if len(views) == 1 else Merged(*views)
    split, number = split_part(name)
    if _has_mixed_samples(flow, inner[0], definition.name):
        message = f"{split} has samples that do not go through {definition.name}, and others that do: {ADVICE}"
        raise builder.spec.problem(definition.path, message)
    parts: Split = builder.split(flow.splits[split], _samples_before(builder, flow, inner[0], definition))
    return parts[number]


def _has_mixed_samples(flow: PreprocessorFlow, name: str, preprocessor: str) -> bool:
    """Return whether merged samples in the sources pass only in part through a preprocessor."""
    if flow.positions(name, preprocessor) and not any(
        flow.passes(source, preprocessor) for source in flow.sources_of(name)
    ):
        return False
    return any(
        not flow.passes(source, preprocessor) or _has_mixed_samples(flow, source, preprocessor)
        for source in flow.sources_of(name)
    )


def _has_length(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def fit_notes(data: dict[str, Any], learns: Callable[[Definition], bool | None]) -> list[str]:
    """Describe what each preprocessor is fitted on.

    `learns` returns None where only its code could tell.
    """
    flow, lines = PreprocessorFlow(data), []
    for definition in definitions(data, "preprocessors"):
        fit_on, does = definition.spec.get("fit", ""), learns(definition)
        sources = " and ".join(flow.sources(definition.name)) or "nothing, as nothing is trained"
        if "fit" not in definition.spec and does is not False:
            condition = "" if does else "where it has a method fit, "
            fitted = f"{condition}it is fitted once on the training samples of {sources}"
            lines.append(f"{definition.name}: {fitted} (fit: none turns that off)")
        elif "fit" in definition.spec:
            lines.append(f"{definition.name}: it is {'not fitted' if fit_on in OFF else f'fitted once on {fit_on}'}")
    return lines

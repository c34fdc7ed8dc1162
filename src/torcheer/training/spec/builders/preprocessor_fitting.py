"""What a preprocessor is fitted on: the data that `fit` names, else the training samples as they come to it."""

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

OFF = (None, "", "none")  # what turns fitting off
ADVICE = "say fit: NAME of the data to fit it on, or fit: none"


def needs_fit(preprocessor: Any) -> bool:
    """Whether a preprocessor learns from data and has not yet; one may say so as `needs_fit`."""
    return callable(getattr(preprocessor, "fit", None)) and bool(getattr(preprocessor, "needs_fit", True))


class Flow:
    """Which preprocessors the training data of a description goes through."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.datasets = {one.name: one for one in definitions(data, "datasets")}
        self.splits = {one.name: one for one in definitions(data, "splits")}
        loaders = {one.name: one.spec.get("dataset") for one in definitions(data, "data_loaders")}
        pipelines = part(data, PIPELINES) or {}
        trained = [name for stage in part(data, STAGES) or () for name in stage.get("training_pipelines", ())]
        inputs = [one for name in trained for one in pipelines.get(name, {}).get("input_injector", ())]
        self.trained = list(dict.fromkeys(filter(None, (loaders.get(one.get("data_loader")) for one in inputs))))

    def sources(self, preprocessor: str) -> list[str]:
        """The training data that goes through a preprocessor; the first of all where none does."""
        return [name for name in self.trained if self.passes(name, preprocessor)] or self.trained[:1]

    def passes(self, name: str, preprocessor: str) -> bool:
        """Whether data goes through a preprocessor, there or below."""
        return bool(self.places(name, preprocessor)) or any(
            self.passes(inner, preprocessor) for inner in self.below(name)
        )

    def places(self, name: str, preprocessor: str) -> list[Any]:
        """The places of a sample, numbers or keys, that a dataset itself has a preprocessor for."""
        one = self.datasets.get(name)
        names = one.spec.get("preprocessors", ()) if one is not None else ()
        pairs = names.items() if isinstance(names, dict) else enumerate(names)
        return [place for place, found in pairs if found == preprocessor]

    def below(self, name: str) -> list[str]:
        """The data that some data is made of."""
        one = self.datasets.get(name)
        if one is None:
            split = self.splits.get(split_part(name)[0])
            return [split.spec["dataset_name"]] if split is not None else []
        return [*([one.spec["link"]] if "link" in one.spec else ()), *one.spec.get("merge", ())]


class Column(Dataset[Any]):
    """The values at some places of a dataset's samples, one after the other."""

    def __init__(self, dataset: Any, places: list[Any]) -> None:
        self._dataset, self._places = dataset, places

    def __len__(self) -> int:
        return len(self._dataset) * len(self._places)

    def __getitem__(self, index: int) -> Any:
        number, place = divmod(index, len(self._places))
        return self._dataset[number][self._places[place]]


def fit(builder: Builder, one: Definition, found: Any) -> None:
    """Fit a preprocessor for which no `fit` says on what."""
    flow = Flow(builder.spec.data)
    sources = flow.sources(one.name)
    if not sources:
        raise builder.spec.problem(one.path, f"nothing is trained that {one.name} could be fitted on: {ADVICE}")
    views = [_view(builder, flow, name, one) for name in sources]
    stream = next((name for name, view in zip(sources, views) if not _has_length(view)), None)
    if stream is not None:
        message = f"{one.name} would be fitted on {stream}, a stream, which may have no end: {ADVICE}"
        raise builder.spec.problem(one.path, message)
    data = views[0] if len(views) == 1 else Merged(*views)
    places = next(filter(None, _places(flow, sources, one.name)), [])
    if isinstance(found, ValuePreprocessor) and getattr(found, "column", 0) is None and places and len(data):
        data = Column(data, places) if isinstance(data[0], (tuple, list, dict)) else data
    try:
        found.fit(data)
    except Exception as error:  # the user's own code
        said = f"{type(error).__name__}: {error}".rstrip(": .")
        message = f"fitting it on the training samples of {' and '.join(sources)} failed with {said}: {ADVICE}"
        raise builder.spec.problem(one.path, message) from error
    builder.notes.append(f"{one.name} was fitted on the training samples of {' and '.join(sources)}")


def _places(flow: Flow, names: list[str], preprocessor: str) -> Iterator[list[Any]]:
    for name in names:
        yield flow.places(name, preprocessor)
        yield from _places(flow, flow.below(name), preprocessor)


def _view(builder: Builder, flow: Flow, name: str, one: Definition) -> Any:
    """The samples of some data as they come to a preprocessor; all of them where they do not go through it."""
    inner = [below for below in flow.below(name) if flow.passes(below, one.name)]
    if not inner:
        return builder.base(flow.datasets[name]) if flow.places(name, one.name) else builder.data(name)
    if name in flow.datasets:
        views = [_view(builder, flow, below, one) for below in inner]
        return views[0] if len(views) == 1 else Merged(*views)
    split, number = split_part(name)
    if _loses(flow, inner[0], one.name):
        message = f"{split} has samples that do not go through {one.name}, and others that do: {ADVICE}"
        raise builder.spec.problem(one.path, message)
    found: Split = builder.split(flow.splits[split], _view(builder, flow, inner[0], one))
    return found[number]


def _loses(flow: Flow, name: str, preprocessor: str) -> bool:
    """Whether below some data samples are merged of which only some go through a preprocessor."""
    if flow.places(name, preprocessor) and not any(flow.passes(one, preprocessor) for one in flow.below(name)):
        return False
    return any(not flow.passes(one, preprocessor) or _loses(flow, one, preprocessor) for one in flow.below(name))


def _has_length(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def fit_notes(data: dict[str, Any], learns: Callable[[Definition], bool | None]) -> list[str]:
    """On what each preprocessor is fitted, for people; `learns` is None where only its code could tell."""
    flow, lines = Flow(data), []
    for one in definitions(data, "preprocessors"):
        given, does = one.spec.get("fit", ""), learns(one)
        sources = " and ".join(flow.sources(one.name)) or "nothing, as nothing is trained"
        if "fit" not in one.spec and does is not False:
            condition = "" if does else "where it has a method fit, "
            fitted = f"{condition}it is fitted once on the training samples of {sources}"
            lines.append(f"{one.name}: {fitted} (fit: none turns that off)")
        elif "fit" in one.spec:
            lines.append(f"{one.name}: it is {'not fitted' if given in OFF else f'fitted once on {given}'}")
    return lines

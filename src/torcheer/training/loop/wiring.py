"""Judge the wiring of a training: which optimizer changes which parameters, and which schedule which optimizer.

Parameters are compared by identity, and nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

from torch import Tensor, nn

from torcheer.models import plain_name, unwrapped
from torcheer.terminal import did_you_mean, first_names, plural

MOST_NAMES = 4  # of parameters in a message

Severity = Literal["error", "warning", "note"]
SEVERITIES: Mapping[str, Severity] = {
    "foreign parameters": "error",  # an optimizer over another model's parameters
    "untrained parameters": "error",  # some parameters of a trained model are in no optimizer
    "nothing trainable": "error",  # no parameter of any optimizer requires a gradient
    "unused optimizer": "error",  # no node names it, so that nobody calls its step
    "doubled optimizer": "error",  # one optimizer by two names, so that it steps twice for a batch
    "foreign schedule": "error",  # it changes the learning rate of another optimizer
    "idle optimizer": "warning",  # only nodes that no stage trains name it
    "frozen model": "note",  # no stage trains it
    "frozen node": "note",  # a model that another node trains
}


@dataclass(frozen=True, slots=True)
class Use:
    """A model where it runs, and the optimizer that trains it there."""

    model: str
    optimizer: str | None = None  # None: it is frozen here
    where: str = ""  # for messages: "pipeline 'generate'"
    is_trained: bool = True  # False: no stage trains what runs here


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the wiring that its author should know."""

    kind: str  # a key of SEVERITIES
    message: str  # names both sides, and what to do
    sides: tuple[str, str]  # what does not fit together: ("optimizer 'adam'", "model 'net'")
    where: str = ""  # the `where` of its use; empty: everywhere

    @property
    def severity(self) -> Severity:
        """ "error": it trains nothing or the wrong thing; "warning": probably; "note": it may well be meant."""
        return SEVERITIES[self.kind]


def judge_wiring(
    models: Mapping[str, nn.Module],
    optimizers: Mapping[str, Any],
    uses: Sequence[Use] | None = None,
    schedulers: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Return what is to be said about a training's wiring, errors first.

    - `models`, `optimizers`: by name. A model may be wrapped (DDP, FSDP, `torch.compile`); parameters may be shared by
      models and by optimizers, and need no size yet.
    - `uses`: where each model runs and what trains it there. None: a loop of its own, in which every optimizer may
      train every model.
    - `schedulers`: of learning rates, by the name of their optimizer.
    """
    wiring = _Wiring(models, optimizers, _any_uses(models, optimizers) if uses is None else uses)
    findings = [
        *(wiring.unused_optimizers() if uses is not None else ()),
        *wiring.doubled_optimizers(optimizers),
        *wiring.foreign_parameters(),
        *wiring.untrained_parameters(),
        *wiring.nothing_trainable(),
        *_foreign_schedules(optimizers, schedulers or {}),
        *wiring.frozen(),
    ]
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _any_uses(models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> list[Use]:
    """The uses in a loop of its own: an optimizer trains the models whose parameters it has; if none, any of them."""
    uses, parameters = list[Use](), {name: _trainable(model) for name, model in models.items()}
    for name, optimizer in optimizers.items():
        owned = [model for model in models if parameters[model].keys() & _parameters(optimizer).keys()]
        uses += [Use(model, name) for model in owned or [model for model in models if parameters[model]]]
    return [*uses, *(Use(model) for model in models if all(use.model != model for use in uses))]


def _trainable(model: nn.Module) -> dict[int, str]:
    """The parameters that get gradients, each once, with their names."""
    named = unwrapped(model).named_parameters()
    return {id(value): plain_name(name) for name, value in named if value.requires_grad}


def _parameters(optimizer: Any) -> dict[int, Tensor]:
    return {id(value): value for group in optimizer.param_groups for value in group["params"]}


class _Wiring:
    """Models, optimizers and where they are used."""

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any], uses: Sequence[Use]) -> None:
        self.models, self.uses = models, uses
        self.trainable = {name: _trainable(model) for name, model in models.items()}
        self.optimized = {name: _parameters(optimizer) for name, optimizer in optimizers.items()}

    @cached_property
    def trained_models(self) -> list[str]:
        """Models that some stage trains."""
        return list(dict.fromkeys(use.model for use in self.uses if use.optimizer is not None and use.is_trained))

    def unused_optimizers(self) -> Iterator[Finding]:
        for name in self.optimized:
            uses = [use for use in self.uses if use.optimizer == name]
            owners = self._owners(name)
            if not uses:
                model = f"model {owners[0]!r}" if owners else "a model"
                message = (
                    f"optimizer {name!r} trains nothing, as no node names it: name it in a node of {model}"
                    f"{', whose parameters it has' if owners else ''}, or leave it out"
                )
                yield Finding("unused optimizer", message, (f"optimizer {name!r}", model))
            elif any(use.is_trained for use in self.uses) and not any(use.is_trained for use in uses):
                where = first_names(dict.fromkeys(use.where for use in uses if use.where))
                message = f"optimizer {name!r} trains nothing: no stage trains {where or 'a node that names it'}"
                yield Finding("idle optimizer", message, (f"optimizer {name!r}", where or "the stages"))

    def doubled_optimizers(self, optimizers: Mapping[str, Any]) -> Iterator[Finding]:
        for first, second in combinations(optimizers, 2):
            places = [{use.where for use in self.uses if use.optimizer == name} for name in (first, second)]
            if places[0] & places[1] and _is_same(optimizers[first], optimizers[second]):
                message = (
                    f"optimizers {first!r} and {second!r} are one object, which would step twice for a batch: name it "
                    f"{first!r} wherever it is used"
                )
                yield Finding("doubled optimizer", message, (f"optimizer {first!r}", f"optimizer {second!r}"))

    def foreign_parameters(self) -> Iterator[Finding]:
        for use in _each_once(self.uses):
            if use.optimizer is None or not use.is_trained or not self.trainable[use.model]:
                continue
            parameters = self.optimized[use.optimizer]
            if not self.trainable[use.model].keys() & parameters.keys():
                place = f" in {use.where}" if use.where else ""
                message = (
                    f"optimizer {use.optimizer!r} is to train model {use.model!r}{place} and has none of its "
                    f"{plural(len(self.trainable[use.model]), 'trainable parameter')}: it has "
                    f"{self._whose(use.optimizer)}. {self._advice(use)}"
                )
                sides = (f"optimizer {use.optimizer!r}", f"model {use.model!r}")
                yield Finding("foreign parameters", message, sides, use.where)

    def untrained_parameters(self) -> Iterator[Finding]:
        """Parameters in no optimizer at all, of models of which others are."""
        optimized = {key for parameters in self.optimized.values() for key in parameters}
        for model in self.trained_models:
            trainable = self.trainable[model]
            missing = [name for key, name in trainable.items() if key not in optimized]
            if not missing or len(missing) == len(trainable):
                continue
            names = dict.fromkeys(use.optimizer for use in self.uses if use.model == model and use.optimizer)
            optimizers = " and ".join(f"{name!r}" for name in names)
            message = (
                f"{len(missing)} of the {len(trainable)} trainable parameters of model {model!r} are in no optimizer "
                f"and would stay as they are: {first_names(missing, MOST_NAMES)}. "
                f"{self._replaced(model, list(names))}Give them to optimizer {optimizers}; or freeze "
                f"{_freezing(missing, trainable.values())}"
            )
            yield Finding("untrained parameters", message, (f"model {model!r}", f"optimizer {optimizers}"))

    def nothing_trainable(self) -> Iterator[Finding]:
        values = [value for parameters in self.optimized.values() for value in parameters.values()]
        if values and self.trained_models and not any(value.requires_grad for value in values):
            models = " and ".join(f"model {name!r}" for name in self.trained_models)
            optimizers = " and ".join(f"optimizer {name!r}" for name in self.optimized)
            message = (
                f"nothing is trained: all {plural(len(values), 'parameter')} of {optimizers} are frozen "
                f"(requires_grad is False), and {models} should learn: leave some of them free"
            )
            yield Finding("nothing trainable", message, (optimizers, models))

    def frozen(self) -> Iterator[Finding]:
        for model in self.models:
            if not any(True for _ in self.models[model].parameters()):
                continue
            uses = [use for use in self.uses if use.model == model]
            if model not in self.trained_models:
                message = f"model {model!r} is frozen: no stage trains a node that gives it an optimizer"
                yield Finding("frozen model", message, (f"model {model!r}", "the optimizers"))
                continue
            for use in _each_once(uses):
                if use.optimizer is None and use.is_trained:
                    message = f"model {model!r} is frozen in {use.where or 'a node'}, which gives it no optimizer"
                    yield Finding("frozen node", message, (f"model {model!r}", use.where), use.where)

    # -- words -------------------------------------------------------------------------------------------------------

    def _owners(self, optimizer: str) -> list[str]:
        """Models some of whose parameters an optimizer has."""
        mine = self.optimized[optimizer].keys()
        return [name for name, model in self.models.items() if any(id(value) in mine for value in model.parameters())]

    def _whose(self, optimizer: str) -> str:
        owners = " and ".join(f"model {name!r}" for name in self._owners(optimizer))
        return f"those of {owners}" if owners else "parameters that no model here has"

    def _advice(self, use: Use) -> str:
        """Advice for an optimizer that has nothing of a model."""
        fitting = [name for name, mine in self.optimized.items() if mine.keys() & self.trainable[use.model].keys()]
        if fitting:
            return f"Optimizer {fitting[0]!r} has them: name it there"
        return self._replaced(use.model, [str(use.optimizer)]) + f"Make it over the parameters of {use.model!r}"

    def _replaced(self, model: str, optimizers: Sequence[str]) -> str:
        """Ask whether a model was changed after its optimizers were made: they have parameters of nobody, alike."""
        known = {id(value) for each in self.models.values() for value in each.parameters()}
        strays = [value for name in optimizers for key, value in self.optimized[name].items() if key not in known]
        shapes = [_shape(value) for value in self.models[model].parameters() if value.requires_grad]
        if not any(_shape(value) in shapes for value in strays):
            return ""
        return "It has others of the same shapes: was the model, or a part of it, replaced or copied since? "


def _each_once(uses: Iterable[Use]) -> list[Use]:
    return list(dict.fromkeys(uses))


def _shape(value: Tensor) -> tuple[int, ...] | None:
    return None if nn.parameter.is_lazy(value) else tuple(value.shape)


def _freezing(names: Sequence[str], trainable: Iterable[str]) -> str:
    """Say how to freeze parameters: by the outermost layers that have only such, where there are such layers."""
    others = [name for name in trainable if name not in set(names)]
    layers = dict[str, None]()
    for name in names:
        path = name.split(".")[:-1]
        prefixes = [".".join(path[:depth]) for depth in range(1, len(path) + 1)]
        whole = [prefix for prefix in prefixes if not any(other.startswith(f"{prefix}.") for other in others)]
        layers[whole[0] if whole else name] = None
    by_option = "" if layers.keys() & set(names) else ", or the option freeze"
    return f"{first_names(layers, MOST_NAMES)}, by requires_grad_(False){by_option}"


def _foreign_schedules(optimizers: Mapping[str, Any], schedulers: Mapping[str, Any]) -> Iterator[Finding]:
    for name, scheduler in schedulers.items():
        sides = (f"the schedule of {name!r}", f"optimizer {name!r}")
        if name not in optimizers:
            message = f"there is a schedule of {name!r}, and the optimizers are {first_names(optimizers) or 'none'}."
            yield Finding("foreign schedule", message + did_you_mean(name, optimizers), sides)
            continue
        scheduled = getattr(scheduler, "optimizer", None)
        if scheduled is None or _is_same(scheduled, optimizers[name]):
            continue
        other = next((key for key, each in optimizers.items() if _is_same(scheduled, each)), None)
        whose = "an optimizer that is not the session's" if other is None else f"optimizer {other!r}"
        advice = f"make it over optimizer {name!r}" + (f", or name it {other!r}" if other else "")
        message = f"the schedule of {name!r} changes the learning rate of {whose}, not of optimizer {name!r}: {advice}"
        yield Finding("foreign schedule", message, (sides[0], f"optimizer {other!r}" if other else whose))


def _is_same(first: Any, second: Any) -> bool:
    """Whether two optimizers are one, or one wraps the other: then they have the same groups."""
    return first is second or getattr(first, "param_groups", 0) is getattr(second, "param_groups", 1)

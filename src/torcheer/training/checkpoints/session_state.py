"""All that a session's numbers depend on, as plain state; and a session put back to where it was."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import torch

from torcheer.errors import BadArgument
from torcheer.training.checkpoints.random_state import restore_rng, rng_state
from torcheer.training.loop.graph_forward import moved

if TYPE_CHECKING:
    from torcheer.training.session import Session


def state_of(session: Session) -> dict[str, Any]:
    """Where a session stands; its tensors are the live ones, not copies."""
    models = {name: model.state_dict() for name, model in session.models.items()}
    return {
        "place": asdict(session.place),
        "rows": session.rows,
        "data": _data(session),
        "models": models,
        "versions": {name: getattr(state, "_metadata", None) for name, state in models.items()},
        "optimizers": {name: one.state_dict() for name, one in session.optimizers.items()},
        "settings": {name: _settings(one) for name, one in session.optimizers.items()},
        "began": session.schedules_began,
        "kinds": _kinds(session),
        "schedules": {name: one.scheduler.state_dict() for name, one in session.schedules.items()},
        "scalers": {name: one.state_dict() for name, one in session.scalers.items()},
        "averages": {name: one.state() for name, one in session.averages.items()},
        "lanes": {lane.name: lane.state() for lane in _lanes_at_work(session)},
        "feeds": {name: feed.state() for name, feed in session.feeds.items()} if session.place.round else {},
        "others": {name: one.state_dict() for name, one in stateful_parts(session).items()},
        "rng": rng_state(),
    }


def restore(session: Session, state: Mapping[str, Any]) -> None:
    """Put a session back to where it was; raises where it is no longer the same session."""
    _check_data(session, state)
    _check_kinds(session, state["kinds"])
    restore_weights(session, state)
    for name, optimizer in session.optimizers.items():
        _restore_optimizer(name, optimizer, copy.deepcopy(_part(state, "optimizers", name)))
    for name, schedule in session.schedules.items():
        schedule.scheduler.load_state_dict(copy.deepcopy(_part(state, "schedules", name)))
        _keep_schedule(schedule.scheduler, session.schedules_began[name], state["began"][name])
    for name, optimizer in session.optimizers.items():
        _keep_changes(session, name, optimizer, state["settings"].get(name, {}))
    for name, scaler in session.scalers.items():
        if name in state["scalers"]:  # one that came later begins as it is
            scaler.load_state_dict(copy.deepcopy(state["scalers"][name]))
    for name, one in stateful_parts(session).items():
        if name in state["others"]:
            one.load_state_dict(copy.deepcopy(state["others"][name]))
    for name, feed in session.feeds.items():
        feed.restore(state["feeds"].get(name))
    _restore_place(session, state)
    for lane in _lanes_at_work(session):
        lane.restore(moved(copy.deepcopy(_part(state, "lanes", lane.name)), session.device))
    restore_rng(state["rng"])  # last: nothing after it may draw


def restore_weights(session: Session, state: Mapping[str, Any]) -> None:
    """The models and their averages alone: what evaluation needs."""
    for name, model in session.models.items():
        weights = OrderedDict(_part(state, "models", name))
        weights._metadata = state["versions"][name]  # type: ignore[attr-defined]
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
            raise BadArgument(f"model {name!r} is not the one of this session: {' '.join(lines)}") from None
    for name, average in session.averages.items():
        average.restore(_part(state, "averages", name))


def _restore_place(session: Session, state: Mapping[str, Any]) -> None:
    place, rows = state["place"], copy.deepcopy(state["rows"])
    if len(rows) > len(session.stages):
        raise BadArgument(
            f"the session has {len(session.stages)} stages, and had {len(rows)}: stages may only be added"
        )
    for field in fields(session.place):
        setattr(session.place, field.name, copy.copy(place[field.name]))
    session.rows[:] = rows + [[] for _ in session.stages[len(rows) :]]


def _restore_optimizer(name: str, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    try:
        optimizer.load_state_dict(state)
    except (ValueError, KeyError) as error:
        raise BadArgument(f"optimizer {name!r} is not the one of this session: {error}") from None
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    for number, parameter in enumerate(parameters):
        for key, value in state["state"].get(number, {}).items():
            loaded = optimizer.state[parameter].get(key)
            # torch casts to the type of the parameter; an optimizer that keeps another one meant it.
            if isinstance(value, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(loaded.device)


def _settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What an optimizer was made with."""
    return {key: value for key, value in optimizer.defaults.items() if type(value) in (bool, int, float, str, tuple)}


def _kinds(session: Session) -> dict[str, dict[str, str]]:
    """The classes of optimizers and schedulers: told, and never looked up."""
    schedulers = {name: one.scheduler for name, one in session.schedules.items()}
    tables: dict[str, Mapping[str, Any]] = {"optimizer": session.optimizers, "schedule": schedulers}
    return {what: {name: type(one).__name__ for name, one in table.items()} for what, table in tables.items()}


def _check_kinds(session: Session, then: Mapping[str, Mapping[str, str]]) -> None:
    for what, table in _kinds(session).items():
        for name, kind in table.items():
            before = then[what].get(name, kind)
            if kind != before:
                raise BadArgument(
                    f"{what} {name!r} is {kind}, and was {before} when this session began, whose state is another"
                )


def _keep_schedule(scheduler: Any, now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    """What a scheduler is made with anew, such as `step_size`, holds from here on; its rates follow the optimizer's."""
    for key, value in now.items():
        if key in vars(scheduler) and key not in ("base_lrs", "_last_lr", "_schedulers") and then.get(key) != value:
            setattr(scheduler, key, copy.deepcopy(value))


def _keep_changes(session: Session, name: str, optimizer: torch.optim.Optimizer, then: Mapping[str, Any]) -> None:
    """A setting that the session is made with anew, such as `lr`, holds from here on; a schedule goes on with it."""
    schedule = session.schedules.get(name)
    for key, value in _settings(optimizer).items():
        if key not in then or then[key] == value:
            continue
        for group in optimizer.param_groups:
            share = group[key] / then[key] if key == "lr" and then[key] else 1.0  # where the schedule has brought it
            group[key] = value * share if key == "lr" else value
            if key == "lr" and "initial_lr" in group:
                group["initial_lr"] = group["initial_lr"] * value / then[key] if then[key] else value
        if key == "lr" and hasattr(schedule and schedule.scheduler, "base_lrs"):
            bases = schedule.scheduler.base_lrs  # type: ignore[union-attr]
            bases[:] = [one * value / then[key] if then[key] else value for one in bases]


def _lanes_at_work(session: Session) -> list[Any]:
    """The pipelines whose meters are half full: none between epochs."""
    if not session.place.round or session.place.stage >= len(session.stages):
        return []
    return [session.lanes[name] for name in session.stages[session.place.stage].training]


def stateful_parts(session: Session) -> dict[str, Any]:
    """Losses, metrics and stop conditions with a state of their own."""
    found = {f"{kind}.{name}": one.function for kind, table in session.measures.items() for name, one in table.items()}
    found |= {f"stages.{number}": stage.stop for number, stage in enumerate(session.stages)}
    return {key: one for key, one in found.items() if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")}


def _data(session: Session) -> dict[str, Any]:
    """What tells whether the data is still the same: its length, and how it is cut into batches."""
    loaders = {
        name: {"samples": feed.samples, "batch_size": feed.loader.batch_size, "drop_last": feed.loader.drop_last}
        | {"shuffle": feed.loader.shuffle}
        for name, feed in session.feeds.items()
    }
    return {"loaders": loaders, "seed": session.options.seed, "accumulate": session.options.accumulate}


def _check_data(session: Session, state: Mapping[str, Any]) -> None:
    now, then = _data(session), state["data"]
    for name, loader in then["loaders"].items():
        found = now["loaders"].get(name, {})
        if found.get("samples") != loader["samples"]:
            raise BadArgument(
                f"the dataset of {name!r} has {found.get('samples', 'no')} samples, and had {loader['samples']} when "
                "this session began: bring the old one back, or begin a new session in another directory"
            )
    if now != then and state["place"]["round"]:
        raise BadArgument(
            f"the session stands inside an epoch, and its batches would be others: {_difference(now, then)}. Change "
            "that between epochs, or put it back"
        )


def _difference(now: Mapping[str, Any], then: Mapping[str, Any], where: str = "") -> str:
    """The first setting that is another."""
    for key in then:
        if isinstance(then[key], dict) and isinstance(now.get(key), dict):
            if now[key] != then[key]:
                return _difference(now[key], then[key], f"{where}{key}.")
        elif now.get(key) != then[key]:
            return f"{where}{key} is {now.get(key)!r} and was {then[key]!r}"
    return f"{where or 'loaders '}has {', '.join(key for key in now if key not in then)} besides"


def _part(state: Mapping[str, Any], kind: str, name: str) -> Any:
    if name not in state[kind]:
        known = ", ".join(state[kind]) or "none"
        raise BadArgument(f"the checkpoint holds no {name!r} among its {kind}; it has {known}")
    return state[kind][name]

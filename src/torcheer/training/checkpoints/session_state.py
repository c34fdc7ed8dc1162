"""Collect the state that a session's results depend on, and restore a session from it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import torch

from torcheer.errors import BadArgument
from torcheer.host.rate_schedules import change_setting, parts_of
from torcheer.training.batches.batch_order import mix_seeds, seed_everything
from torcheer.training.checkpoints.random_state import restore_rng, rng_state
from torcheer.training.loop.graph_forward import move_to_device
from torcheer.training.parallel.sharded_tensors import forget_gathered, is_sharded, like_live

if TYPE_CHECKING:
    from torcheer.training.session import Session


def state_of(session: Session) -> dict[str, Any]:
    """Return the state of a session; its tensors are live, not copies."""
    models = {name: model.state_dict() for name, model in session.models.items()}
    return {
        "place": asdict(session.place),
        "changes": session.changes.applied,
        "rows": session.rows,
        "data": _data_facts(session),
        "models": models,
        "versions": {name: getattr(state, "_metadata", None) for name, state in models.items()},
        "optimizers": {name: part.state_dict() for name, part in session.optimizers.items()},
        "settings": {name: _settings(part.defaults) for name, part in session.optimizers.items()},
        "groups": session.initial_groups,
        "began": session.initial_schedules,
        "kinds": _kinds(session),
        "schedules": {name: part.scheduler.state_dict() for name, part in session.schedules.items()},
        "scalers": {name: part.state_dict() for name, part in session.scalers.items()},
        "averages": {name: part.state() for name, part in session.averages.items()},
        **_rank_states(session),
        "feeds": {name: feed.state() for name, feed in session.feeds.items()} if session.place.round else {},
        "left_out": {name: state for name, feed in session.feeds.items() if (state := feed.left_out.state())},
        "others": {name: part.state_dict() for name, part in stateful_parts(session).items()},
    }


def _rank_states(session: Session) -> dict[str, Any]:
    """What each rank has for itself: its random generators, and the meters of an epoch that is not over.

    Those of rank 0 are where one process has its own; those of all are a list beside.
    """
    mine = {"lanes": {runner.name: runner.state() for runner in _active_runners(session)}, "rng": rng_state()}
    return mine if session.ranks is None else {**mine, "ranks": session.ranks.exchange(mine)}


def _restore_rank(session: Session, state: Mapping[str, Any]) -> None:
    """Take up what this rank had; at another number of ranks, the first takes the sum of their meters."""
    saved, count = state.get("ranks", [state]), 1 if session.ranks is None else session.ranks.count
    is_same = len(saved) == count
    mine = saved[session.rank] if is_same else saved[0]
    for runner in _active_runners(session):
        lanes = [_part(rank, "lanes", runner.name) for rank in ([mine] if is_same else saved)]
        runner.merge(move_to_device(copy.deepcopy(lanes), session.device), is_counted=is_same or session.is_main)
    if is_same:
        restore_rng(mine["rng"])
    else:
        place = state["place"]
        share = 0 if session.ranks is None else session.ranks.share.rank
        seed_everything(mix_seeds(session.options.seed or 0, share, count, place["step"], place["epoch"]))


def restore(session: Session, state: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Restore a session from a state; raise where it is no longer the same session.

    Return the settings that differ from those of the state and hold from now on, by name: before and now.
    """
    _check_data(session, state)
    _check_kinds(session, state["kinds"])
    restore_weights(session, state)
    for name, optimizer in session.optimizers.items():
        _restore_optimizer(name, optimizer, copy.deepcopy(_part(state, "optimizers", name)))
    changes = _data_changes(_data_facts(session), state["data"])
    for name, schedule in session.schedules.items():
        schedule.scheduler.load_state_dict(copy.deepcopy(_part(state, "schedules", name)))
        changes |= _apply_schedule_changes(schedule.scheduler, session.initial_schedules[name], state["began"][name])
    for name in session.optimizers:
        groups = state.get("groups", {}).get(name)  # none in checkpoints of torcheer 0.1
        changes |= _apply_setting_changes(session, name, groups or [state["settings"].get(name, {})])
    for name, scaler in session.scalers.items():
        if name in state["scalers"]:  # a scaler added since then begins as it is
            scaler.load_state_dict(copy.deepcopy(state["scalers"][name]))
    for name, part in stateful_parts(session).items():
        if name in state["others"]:
            part.load_state_dict(copy.deepcopy(state["others"][name]))
    for name, feed in session.feeds.items():
        feed.restore(state["feeds"].get(name))
        feed.left_out.restore(state.get("left_out", {}).get(name, ()))
    _restore_place(session, state)
    session.changes.resume(state.get("changes"), session.place.step)
    _restore_rank(session, state)  # last: nothing after it may draw random numbers
    return changes


def restore_weights(session: Session, state: Mapping[str, Any]) -> None:
    """Restore only the models and their averages: what evaluation needs."""
    for name, model in session.models.items():
        weights = OrderedDict(_part(state, "models", name))
        weights._metadata = state["versions"][name]  # type: ignore[attr-defined]
        if session.ranks is not None:
            live = model.state_dict()
            weights.update({key: like_live(value, live.get(key)) for key, value in weights.items()})
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
            raise BadArgument(
                f"model {name!r} is not the one of this session: {' '.join(lines)} Bring the old one back, or begin a "
                "new session in another directory"
            ) from None
        forget_gathered(model.modules())
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
    _shard_like(optimizer, state)
    try:
        optimizer.load_state_dict(state)
    except (ValueError, KeyError) as error:
        raise BadArgument(f"optimizer {name!r} is not the one of this session: {error}") from None
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        for key, value in state["state"].get(number, {}).items():
            loaded = optimizer.state[parameter].get(key)
            # torch casts to the parameter's dtype; an optimizer that keeps another dtype does so on purpose.
            if isinstance(value, torch.Tensor) and loaded.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(loaded.device)


def group_settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the settings that the groups of an optimizer were made with; schedulers keep the rate there."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return []  # the session refuses it
    names = optimizer.defaults.keys()
    groups = [{**group, "lr": group.get("initial_lr", group.get("lr"))} for group in optimizer.param_groups]
    return [_settings({key: group[key] for key in names & group.keys()}) for group in groups]


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are settings."""
    return {key: value for key, value in values.items() if type(value) in (bool, int, float, str, tuple)}


def _kinds(session: Session) -> dict[str, dict[str, str]]:
    """Return the class names of optimizers and schedulers: compared, never imported."""
    schedulers = {name: part.scheduler for name, part in session.schedules.items()}
    tables: dict[str, Mapping[str, Any]] = {"optimizer": session.optimizers, "schedule": schedulers}
    return {kind: {name: type(part).__name__ for name, part in table.items()} for kind, table in tables.items()}


def _check_kinds(session: Session, saved: Mapping[str, Mapping[str, str]]) -> None:
    for group, table in _kinds(session).items():
        for name, kind in table.items():
            before = saved[group].get(name, kind)
            if kind != before:
                raise BadArgument(
                    f"{group} {name!r} is {kind}, and was {before} when this session began, whose state is another"
                )


def _apply_schedule_changes(
    scheduler: Any, initial: Mapping[str, Any], saved: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Apply settings of a scheduler that changed since the checkpoint, such as `step_size`; return them.

    Its rates follow the optimizer's.
    """
    changes = {}
    for key, value in initial.items():
        if key in vars(scheduler) and key not in ("base_lrs", "_last_lr", "_schedulers") and saved.get(key) != value:
            setattr(scheduler, key, copy.deepcopy(value))
            changes[f"{type(scheduler).__name__}.{key}"] = (saved.get(key), value)
    return changes


def _apply_setting_changes(
    session: Session, name: str, saved: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Apply settings of an optimizer that changed since the checkpoint, such as `lr`; return them.

    A schedule is rescaled. `saved`: of each group, or of all of them.
    """
    schedulers = list(parts_of(session.schedules[name].scheduler)) if name in session.schedules else []
    groups, initial = session.optimizers[name].param_groups, session.initial_groups[name]
    shown = f"{name}." if len(session.optimizers) > 1 else ""
    changes: dict[str, dict[int, tuple[Any, Any]]] = {}
    for place, (group, settings) in enumerate(zip(groups, initial, strict=True)):
        before = saved[place % len(saved)]
        for key, value in settings.items():
            if key not in before or before[key] == value:
                continue
            changes.setdefault(f"{shown}{key}", {})[place] = (before[key], value)
            if key == "lr":
                share = group[key] / before[key] if before[key] else 1.0  # the factor that the schedule has reached
                change_setting(group, key, value * share, schedulers)
            else:
                group[key] = value
    return _merged(changes, range(len(groups)))


def _merged(changes: Mapping[str, Mapping[Any, tuple[Any, Any]]], places: Iterable[Any]) -> dict[str, tuple[Any, Any]]:
    """Return changes by name; one that is not the same in all places by name and place."""
    merged = {}
    for name, pairs in changes.items():
        is_one = pairs.keys() == set(places) and len(set(map(repr, pairs.values()))) == 1
        for place, pair in pairs.items():
            merged[name if is_one else f"{name}[{place}]"] = pair
    return merged


def _shard_like(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Shard the tensors of an optimizer's state as the parameters they belong to."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        if is_sharded(parameter) and number in state["state"]:
            own = state["state"][number]
            own.update({key: like_live(value, parameter) for key, value in own.items()})


def _active_runners(session: Session) -> list[Any]:
    """Return the pipelines with meters in use: none between epochs."""
    if not session.place.round or session.place.stage >= len(session.stages):
        return []
    return [session.runners[name] for name in session.stages[session.place.stage].training]


def stateful_parts(session: Session) -> dict[str, Any]:
    """Return losses, metrics, stop conditions and callbacks that have a state."""
    parts = {
        f"{kind}.{name}": part.function for kind, table in session.measures.items() for name, part in table.items()
    }
    for number, stage in enumerate(session.stages):
        parts[f"stages.{number}"] = stage.stop
        parts |= {f"stages.{number}.before_epoch.{place}": part for place, part in enumerate(stage.before_epoch)}
    return {
        key: part for key, part in parts.items() if hasattr(part, "state_dict") and hasattr(part, "load_state_dict")
    }


def _data_facts(session: Session) -> dict[str, Any]:
    """Return what identifies the data: its length, and how it is split into batches."""
    loaders = {
        name: {"samples": feed.samples, "batch_size": feed.loader.batch_size, "drop_last": feed.loader.drop_last}
        | {"shuffle": feed.loader.shuffle}
        for name, feed in session.feeds.items()
    }
    return {"loaders": loaders, "seed": session.options.seed, "accumulate": session.options.accumulate}


def _data_changes(current: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return which settings of the data differ, by name: before and now."""
    loaders: dict[str, dict[str, tuple[Any, Any]]] = {}
    for name, before in saved["loaders"].items():
        now = current["loaders"].get(name, before)
        for key in ("batch_size", "drop_last", "shuffle"):
            if before.get(key) != now.get(key):
                loaders.setdefault(key, {})[name] = (before.get(key), now.get(key))
    rest = {key: (saved[key], current[key]) for key in ("seed", "accumulate") if saved[key] != current[key]}
    return _merged(loaders, saved["loaders"]) | rest


def _without_samples(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, "loaders": {name: loader | {"samples": None} for name, loader in facts["loaders"].items()}}


def _check_data(session: Session, state: Mapping[str, Any]) -> None:
    current, saved = _data_facts(session), state["data"]
    if session.changes_data:  # compared where an epoch goes on, once its callbacks have changed it
        session.samples_to_resume = {name: loader["samples"] for name, loader in saved["loaders"].items()}
        current, saved = _without_samples(current), _without_samples(saved)
    for name, loader in saved["loaders"].items():
        feed = current["loaders"].get(name, {})
        if feed.get("samples") != loader["samples"]:
            raise BadArgument(
                f"the dataset of {name!r} has {feed.get('samples', 'no')} samples, and had {loader['samples']} when "
                "this session began: bring the old one back, or begin a new session in another directory"
            )
    if current != saved and state["place"]["round"]:
        raise BadArgument(
            f"the session stands inside an epoch, and its batches would be others: {_difference(current, saved)}. "
            "Change that between epochs, or put it back"
        )


def _difference(current: Mapping[str, Any], saved: Mapping[str, Any], where: str = "") -> str:
    """Describe the first setting that differs."""
    for key in saved:
        if isinstance(saved[key], dict) and isinstance(current.get(key), dict):
            if current[key] != saved[key]:
                return _difference(current[key], saved[key], f"{where}{key}.")
        elif current.get(key) != saved[key]:
            return f"{where}{key} is {current.get(key)!r} and was {saved[key]!r}"
    return f"{where or 'loaders '}has {', '.join(key for key in current if key not in saved)} besides"


def _part(state: Mapping[str, Any], kind: str, name: str) -> Any:
    if name not in state[kind]:
        names = ", ".join(state[kind]) or "none"
        raise BadArgument(f"the checkpoint holds no {name!r} among its {kind}; it has {names}")
    return state[kind][name]

"""Text and HTML of a session.

A summary of its models and data, and its progress at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from torch import nn

from torcheer.encoding import held_bytes
from torcheer.terminal import cut, format_table, human_bytes, plural
from torcheer.training.loop.evaluation import part_name

if TYPE_CHECKING:
    from torcheer.training.session import Session

MOST_LAYERS = 40  # in a table
MOST_ALERTS = 5  # in a notebook


class Summary(str):
    """A text whose repr is the text itself, for consoles and notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summarise(session: Session) -> Summary:
    """Summarise layers and parameters of each model, device, loaders, stages and what is frozen."""
    lines: list[str] = []
    for name, model in session.models.items():
        lines += [*_model(session, name, model), ""]
    return Summary("\n".join([*lines, *_data(session), *_stages(session)]))


def _model(session: Session, name: str, model: nn.Module) -> Iterator[str]:
    rows = [(address or name, type(layer).__name__, _count(layer)) for address, layer in layers_of(model)]
    table = format_table([("layer", "type", "parameters"), *rows], left=2)
    title = f"{name}: {type(model).__name__} on {session.device}"
    rule = "─" * max(map(len, (title, *table)))
    yield from (title, rule, table[0], rule, *cut(table[1:], MOST_LAYERS), rule, _total(session, model))


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that have no children, or have direct parameters; each once."""
    for address, module in model.named_modules():
        if not any(True for _ in module.children()) or any(True for _ in module.parameters(recurse=False)):
            yield address, module


def _count(layer: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in layer.parameters(recurse=False)):,}"


def _total(session: Session, model: nn.Module) -> str:
    values = [value for value in model.parameters() if not nn.parameter.is_lazy(value)]
    groups = [group for optimizer in session.optimizers.values() for group in optimizer.param_groups]
    trained = {id(value) for group in groups for value in group["params"]}
    count = sum(value.numel() for value in values)
    learning = sum(value.numel() for value in values if value.requires_grad and id(value) in trained)
    size = human_bytes(sum(map(held_bytes, values)))
    return f"{count:,} parameters ({size}): {learning:,} trained, {count - learning:,} not"


def _data(session: Session) -> list[str]:
    rows = [("loader", "samples", "batches")]
    for name, feed in session.feeds.items():
        size = feed.loader.batch_size
        if feed.samples is None:
            rows.append((name, "a stream", f"of {size}"))
        else:
            rows.append((name, f"{feed.samples:,}", f"{len(feed):,} of {size}"))
    return format_table(rows, left=1)


def _stages(session: Session) -> Iterator[str]:
    for number, stage in enumerate(session.stages):
        validated = f", validates {', '.join(stage.validation)}" if stage.validation else ""
        yield f"stage {number}: trains {', '.join(stage.training)}{validated}{_until(stage.stop)}"
        if stage.before_epoch:
            yield f"  before each epoch: {', '.join(map(part_name, stage.before_epoch))}"
    yield from (finding.message for finding in session.wiring() if finding.severity == "note")
    yield f"log: {where_log(session)}"


def _until(stop: Any) -> str:
    if stop is None:
        return ", for 1 epoch"
    epochs = getattr(stop, "num_epochs", None)
    return f", for {plural(epochs, 'epoch')}" if epochs is not None else f", until {part_name(stop)}"


def where_log(session: Session) -> str:
    """Describe where rows and checkpoints are written."""
    if session.directory is None:
        return "nothing is written (no to=)"
    return f"{session.directory / 'metrics'}, checkpoints beside it"


def position(session: Session) -> str:
    """ "stage 0 of 2, epoch 3, step 120"."""
    place = session.place
    count = len(session.stages)
    if place.stage >= count:
        return f"all trained, epoch {place.epoch}, step {place.step:,}"
    if not session.has_begun:
        return f"not begun, {plural(count, 'stage')}"
    return f"stage {place.stage} of {count}, epoch {place.epoch + 1}, step {place.step:,}"


def last_values(session: Session) -> str:
    """ "loss 0.5123, val loss 0.6024" of the last epoch that ended."""
    rows = [row for stage in session.rows for row in stage]
    values = {name: value for name, value in rows[-1].items() if name != "epoch"} if rows else {}
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


def brief(session: Session) -> str:
    """Return one line: what `repr` shows."""
    words = [f"{', '.join(session.models)} on {session.device}", position(session)]
    words += [values] if (values := last_values(session)) else []
    words += [f"asked to stop: {session.stop_reason}"] if session.stop_reason else []
    alerts = plural(len(session.alerts), "alert") if session.alerts else "no alerts"
    return f"<Session of {'; '.join([*words, alerts, f'log: {where_log(session)}'])}>"


def html(session: Session) -> str:
    """Return what a notebook shows: the same as a table, with the last alerts."""
    rows = [("models", f"{', '.join(session.models)} on {session.device}"), ("position", position(session))]
    rows += [("last epoch", last_values(session) or "–"), ("log", where_log(session))]
    earlier = len(session.alerts) - MOST_ALERTS
    rows += [("alerts", f"… {earlier} earlier")] if earlier > 0 else []
    rows += [("alert", text) for text in session.alerts[-MOST_ALERTS:]] or [("alerts", "none")]
    cells = "".join(f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{cells}</table><pre>{escape(summarise(session))}</pre>"

"""Forwards that are generators: their bodies run when the caller takes the next item."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.capture.record.module_values import add_outputs
from torcheer.capture.record.tensor_trees import walk

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

MAX_ITEMS = 10_000  # a generator may be endless
YIELDS = "forward is a generator: it was run to its end, and what it yielded counts as its outputs"
ENDLESS = (
    f"forward is a generator: it was left after {MAX_ITEMS:,} items, and what it yielded until then counts as outputs"
)
HELD = "forward returned a generator inside something else: it has yet to run, and is not part of this history"
LAZY = "forward returned a {kind}, which runs when it is awaited: what it does is not part of this history"


def run_to_end(out: Any, notes: list[str]) -> Any:
    """Return a model's output; if it is an iterator, run it, return its items and add a note."""
    if isinstance(out, Coroutine) or hasattr(
        type(out), "__anext__"
    ):  # an output's own `__getattr__` may raise anything
        notes.append(LAZY.format(kind=type(out).__name__))
    if not isinstance(out, Iterator) or isinstance(out, Tensor):
        with suppress(Exception):  # a user-defined container that cannot be walked
            if any(isinstance(leaf, Iterator) for _, leaf in walk(out) if not isinstance(leaf, Tensor)):
                notes.append(HELD)
        return out
    items = list(islice(out, MAX_ITEMS))
    notes.append(ENDLESS if len(items) == MAX_ITEMS else YIELDS)
    return items


def scoped_generator(recorder: Recorder, scope: int, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Wrap a generator so that its body runs in the scope of the module call that made it."""
    step: Callable[..., Any] = generator.send
    sent: Any = None
    while True:
        outer, recorder.scope = recorder.scope, scope
        try:
            item = step(sent)
        except StopIteration as end:
            return end.value
        finally:
            recorder.scope = outer
        add_outputs(recorder, scope, item)
        try:
            sent, step = (yield item), generator.send
        except GeneratorExit:
            generator.close()
            raise
        except BaseException as error:
            sent, step = error, generator.throw

"""A forward that yields: its body runs when somebody asks for the next item."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torcheer.capture.record.module_values import returned
from torcheer.capture.record.tensor_trees import walk

if TYPE_CHECKING:
    from torcheer.capture.record.recorder import Recorder

MOST = 10_000  # items; a generator need not end
YIELDS = "forward is a generator: it was run to its end, and what it yielded counts as its outputs"
ENDLESS = f"forward is a generator: it was left after {MOST:,} items, and what it yielded until then counts as outputs"
HELD = "forward returned a generator inside something else: it has yet to run, and is not part of this history"
LAZY = "forward returned a {kind}, which runs when it is awaited: what it does is not part of this history"


def run_to_end(out: Any, recorder: Recorder) -> Any:
    """What a model returned; the items where it returned something that has yet to run."""
    if isinstance(out, Coroutine) or hasattr(out, "__anext__"):
        recorder.remarks.append(LAZY.format(kind=type(out).__name__))
    if not isinstance(out, Iterator) or isinstance(out, Tensor):
        with suppress(Exception):  # a container of somebody's own
            if any(isinstance(leaf, Iterator) for _, leaf in walk(out) if not isinstance(leaf, Tensor)):
                recorder.remarks.append(HELD)
        return out
    items = list(islice(out, MOST))
    recorder.remarks.append(ENDLESS if len(items) == MOST else YIELDS)
    return items


def followed(recorder: Recorder, scope: int, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The same generator, whose body runs inside the module call that made it, whoever asks for its items."""
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
        returned(recorder, scope, item)
        try:
            sent, step = (yield item), generator.send
        except GeneratorExit:
            generator.close()
            raise
        except BaseException as error:
            sent, step = error, generator.throw

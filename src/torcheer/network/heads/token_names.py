"""Names of tokens, which stand at the rows and columns of attention heads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from torcheer.errors import BadArgument

TokenNames = tuple[tuple[str, ...], ...]  # for each item of the batch; a single list holds for all of them

_MOST_NAMES: Final = 65_536  # of all items together
_LONGEST: Final = 200  # letters of a name
_FORMS: Final = "give a list of names, or of such lists, one for each item of the batch"


def check_token_names(names: Any) -> TokenNames:
    """The names as they are stored; None for none. Raises `BadArgument` where they are no lists of text."""
    if names is None:
        return ()
    if isinstance(names, str) or not isinstance(names, Iterable):
        near = f"; did you mean {names.split()[:4]!r}?" if isinstance(names, str) else ""
        raise BadArgument(f"token_names is {type(names).__name__}: {_FORMS}{near}")
    listed = list(names)
    items = [listed] if listed and all(isinstance(name, str) for name in listed) else listed
    checked = tuple(_item(item, number) for number, item in enumerate(items))
    if sum(map(len, checked)) > _MOST_NAMES:
        raise BadArgument(f"token_names has {sum(map(len, checked))} names; at most {_MOST_NAMES} can be shown")
    return checked


def _item(item: Any, number: int) -> tuple[str, ...]:
    if isinstance(item, str) or not isinstance(item, Sequence):
        raise BadArgument(f"token_names[{number}] is {type(item).__name__}, beside lists: {_FORMS}")
    wrong = next((name for name in item if not isinstance(name, str)), None)
    if wrong is not None:
        raise BadArgument(f"token_names[{number}] holds a {type(wrong).__name__}: {_FORMS}")
    return tuple(name[:_LONGEST] for name in item)


def write_token_names(names: TokenNames, path: Path) -> None:
    """Write names to a file that `read_token_names` reads."""
    path.write_text(json.dumps(names), encoding="utf-8")


def read_token_names(text: str) -> TokenNames:
    """Names of a command line: a file (JSON, or a name on each line), or the names themselves between spaces."""
    path = Path(text)
    if not path.is_file():
        return check_token_names(text.split()) if text else ()
    content = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".json":
        return check_token_names(content.splitlines())
    try:
        return check_token_names(json.loads(content))
    except ValueError as error:
        raise BadArgument(f"{path} has no names of tokens: {error}") from None

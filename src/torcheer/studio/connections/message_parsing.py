"""Parses a page's text into a message: bounded, checked, no key twice."""

from __future__ import annotations

import json
from typing import Any, Final

from torcheer.errors import BadArgument
from torcheer.studio.connections.messages import FROM_PAGE
from torcheer.wire.json_codec import parse_message

MOST_BYTES: Final = 64 * 1024


class InvalidMessage(BadArgument):
    """An invalid message; `question` is its question's number, or -1."""

    def __init__(self, text: str, question: int = -1) -> None:
        super().__init__(text)
        self.question = question


def parse(text: str | bytes) -> Any:
    """Parse a page's message to one of `messages.FROM_PAGE`; raises `InvalidMessage`."""
    if len(text) > MOST_BYTES:
        raise InvalidMessage(f"a message of {len(text)} bytes; at most {MOST_BYTES} are read")
    try:
        message = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError):  # also UnicodeDecodeError, numbers of 5,000 digits, 100,000 nested lists
        raise InvalidMessage("a message that is not JSON, or says a thing twice") from None
    if not isinstance(message, dict):
        raise InvalidMessage("a message is an object with a `kind`")
    try:
        return parse_message(FROM_PAGE, message, strict=True)
    except BadArgument as error:
        number = message.get("question")
        raise InvalidMessage(str(error), number if type(number) is int and 0 <= number < 2**53 else -1) from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key twice")
    return unique


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")

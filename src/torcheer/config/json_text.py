"""JSON: the values that `json.loads` gives, and the line of each."""

from __future__ import annotations

import json
import re
from typing import Any

from torcheer.config.line_numbers import Fault, KeyPath, Places

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+')


def parse(text: str) -> tuple[Any, Places]:
    """What a JSON text says, and the line of each value."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise Fault(error.msg, error.lineno, error.colno) from None
    except ValueError as error:  # a whole number of thousands of digits
        raise Fault(str(error)) from None
    walk = Walk(text)
    walk.value(())
    return data, walk.places


class Walk:
    """One pass over the tokens of a text that is known to be JSON; colons and commas tell nothing more."""

    def __init__(self, text: str) -> None:
        self.places = Places(text)
        self.tokens = ((match[0], match.start()) for match in TOKEN.finditer(text))

    def value(self, path: KeyPath) -> None:
        self.rest(*next(self.tokens), path)

    def rest(self, token: str, index: int, path: KeyPath) -> None:
        """The value that begins with `token`."""
        self.places.put(path, index)
        if token == "{":
            self.mapping(path)
        elif token == "[":
            self.sequence(path)

    def mapping(self, path: KeyPath) -> None:
        seen: dict[str, int] = {}
        for token, index in self.tokens:
            if token == "}":
                return
            key = json.loads(token)
            if key in seen:
                raise self.places.twice(key, index, seen[key])
            seen[key] = self.places.line(index)
            self.value((*path, key))

    def sequence(self, path: KeyPath) -> None:
        for position, (token, index) in enumerate(self.tokens):
            if token == "]":
                return
            self.rest(token, index, (*path, position))

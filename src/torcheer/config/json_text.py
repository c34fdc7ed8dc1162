"""JSON parser: the values of `json.loads`, and the line of each."""

from __future__ import annotations

import json
import re
from typing import Any

from torcheer.config.line_numbers import KeyPath, LineMap, TextFault

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+')


def parse(text: str) -> tuple[Any, LineMap]:
    """Parse a JSON text; return its value and the line of each part."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TextFault(error.msg, error.lineno, error.colno) from None
    except ValueError as error:  # a whole number of thousands of digits
        raise TextFault(str(error)) from None
    walk = JsonWalker(text)
    walk.value(())
    return data, walk.line_map


class JsonWalker:
    """One pass over the tokens of valid JSON; colons and commas are skipped."""

    def __init__(self, text: str) -> None:
        self.line_map = LineMap(text)
        self.tokens = ((match[0], match.start()) for match in TOKEN.finditer(text))

    def value(self, path: KeyPath) -> None:
        self.value_from(*next(self.tokens), path)

    def value_from(self, token: str, index: int, path: KeyPath) -> None:
        """Walk the value that begins with `token`."""
        self.line_map.add(path, index)
        if token == "{":
            self.mapping(path)
        elif token == "[":
            self.sequence(path)

    def mapping(self, path: KeyPath) -> None:
        key_lines: dict[str, int] = {}
        for token, index in self.tokens:
            if token == "}":
                return
            key = json.loads(token)
            if key in key_lines:
                raise self.line_map.duplicate_key(key, index, key_lines[key])
            key_lines[key] = self.line_map.line(index)
            self.value((*path, key))

    def sequence(self, path: KeyPath) -> None:
        for position, (token, index) in enumerate(self.tokens):
            if token == "]":
                return
            self.value_from(token, index, (*path, position))

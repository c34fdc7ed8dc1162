"""YAML parser: plain values only, and the line of each.

An unquoted word is read as PyYAML's safe loader reads it, with two exceptions: `1e-3`, `1E5` and `.5e3` are numbers,
as in YAML 1.2, and dates stay strings, as they would in JSON. A tag that would build an object is refused, and so are
aliases that expand to far more than the file holds.
"""

from __future__ import annotations

import re
from typing import Any

from torcheer.config.line_numbers import KeyPath, LineMap, TextFault

TAG = "tag:yaml.org,2002:"
SCALAR_TAGS = {TAG + name for name in ("str", "int", "float", "bool", "null")}
RESOLVED_TAGS = {
    TAG + name for name in ("bool", "null", "merge", "int", "float")
}  # implicit types of YAML 1.1, without dates
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?\Z")  # of YAML 1.2
ALIAS_ALLOWANCE = 10_000  # values that aliases may add to those a file holds


def parse(text: str) -> tuple[Any, LineMap]:
    """Parse a YAML text; return its value and the line of each part."""
    try:
        import yaml
    except ImportError:
        raise TextFault("YAML needs PyYAML: pip install pyyaml, or write the config as JSON or TOML") from None
    line_map = LineMap(text)
    try:
        loader = yaml.SafeLoader(text)
        loader.yaml_implicit_resolvers = implicit_resolvers(yaml)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        raise line_map.fault(f"the character {error.character:#x} may not stand in YAML", error.position) from None
    except yaml.MarkedYAMLError as error:
        mark, message = error.problem_mark or error.context_mark, f"{error.problem or error.context}"
        raise (line_map.fault(message, mark.index) if mark else TextFault(message)) from None
    if node is None:
        return None, line_map
    walk = YamlWalker(loader, line_map, len(text) + ALIAS_ALLOWANCE)
    return walk.value(node, ()), line_map


def implicit_resolvers(yaml: Any) -> dict[str, list[tuple[str, Any]]]:
    """Return the implicit resolvers by first character: those of YAML 1.1 without dates, and the floats of 1.2."""
    resolvers = {
        first: [(tag, pattern) for tag, pattern in readers if tag in RESOLVED_TAGS]
        for first, readers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        resolvers[first].append((TAG + "float", FLOAT))
    return resolvers


class YamlWalker:
    """One pass over the nodes of a text; an aliased node is visited, and copied, at each use."""

    def __init__(self, loader: Any, line_map: LineMap, limit: int) -> None:
        self.loader, self.line_map, self.remaining = loader, line_map, limit

    def value(self, node: Any, path: KeyPath, key: Any = None) -> Any:
        self.count(node)
        # A block starts below its key; its line is that of the key.
        shown = key if key is not None and getattr(node, "flow_style", None) is False else node
        self.line_map.add(path, shown.start_mark.index)
        if node.id == "scalar":
            return self.scalar(node)
        if node.tag not in (TAG + "map", TAG + "seq"):
            raise self.fault(f"the tag {short_tag(node.tag)} is not read here: only plain values are", node)
        if node.id == "sequence":
            return [self.value(item, (*path, position)) for position, item in enumerate(node.value)]
        return {name: self.value(item, (*path, name), key) for name, (key, item) in self.pairs(node).items()}

    def scalar(self, node: Any) -> Any:
        if node.tag not in SCALAR_TAGS:
            raise self.fault(f"the tag {short_tag(node.tag)} is not read here: only plain values are", node)
        try:
            return self.loader.construct_object(node)
        except (ValueError, KeyError, IndexError):  # `!!int many`, `0x_`, a number of thousands of digits
            raise self.fault(f"this is not a value of type {short_tag(node.tag)}", node) from None

    def pairs(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """Return a mapping's keys with their nodes.

        Its own take precedence over those merged by `<<`.
        """
        self.count(node)
        pairs: dict[str, tuple[Any, Any]] = {}
        for key, item in node.value:
            name = self.name(key)
            if name in pairs:
                raise self.line_map.duplicate_key(
                    name, key.start_mark.index, self.line_map.line(pairs[name][0].start_mark.index)
                )
            pairs[name] = key, item
        merged = pairs.get("<<")
        if merged is None or merged[0].tag != TAG + "merge":
            return pairs
        del pairs["<<"]
        return {**self.merged_pairs(merged[1]), **pairs}

    def merged_pairs(self, node: Any) -> dict[str, tuple[Any, Any]]:
        pairs: dict[str, tuple[Any, Any]] = {}
        for source in node.value if node.id == "sequence" else [node]:
            if source.id != "mapping":
                raise self.fault("<< takes a mapping, or a list of them", source)
            pairs = {**self.pairs(source), **pairs}  # the first of a list wins
        return pairs

    def name(self, key: Any) -> str:
        if key.id != "scalar" or key.tag not in (TAG + "str", TAG + "merge"):
            kind = short_tag(key.tag)
            raise self.fault(f"a key is a string, and this one is read as {kind}: put it in quotes", key)
        return str(key.value)

    def count(self, node: Any) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise self.fault("the aliases of this file unfold into too many values", node)

    def fault(self, message: str, node: Any) -> TextFault:
        return self.line_map.fault(message, node.start_mark.index)


def short_tag(tag: str) -> str:
    """Shorten a tag's long name to the form `!!int`."""
    return "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag

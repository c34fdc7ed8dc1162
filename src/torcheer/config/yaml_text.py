"""YAML: plain values only, and the line of each.

Numbers are read as people write them: YAML 1.1 takes `1e-3` for a text and `1:30` for the number 90, and here it is
the other way round. Dates stay texts, as they would in JSON. A tag that would build an object is refused, and so are
aliases that unfold into far more than the file holds.
"""

from __future__ import annotations

import re
from typing import Any

from torcheer.config.places import Fault, KeyPath, Places

TAG = "tag:yaml.org,2002:"
PLAIN = {TAG + name for name in ("str", "int", "float", "bool", "null")}
KEPT = {TAG + name for name in ("bool", "null", "merge")}  # of YAML 1.1's readings of an unquoted word
INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
FLOAT = re.compile(
    r"""[-+]?(?: [0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?   # 1.  1.5  1.5e3
               | \.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?          # .5
               | [0-9][0-9_]*[eE][-+]?[0-9]+                 # 1e5
               | \.(?:inf|Inf|INF) ) $
        | \.(?:nan|NaN|NAN) $""",
    re.VERBOSE,
)
SPARE = 10_000  # values that aliases may add to those a file holds


def parse(text: str) -> tuple[Any, dict[KeyPath, int]]:
    """What a YAML text says, and the line of each value."""
    try:
        import yaml
    except ImportError:
        raise Fault("YAML needs PyYAML: pip install pyyaml, or write the config as JSON or TOML") from None
    places = Places(text)
    try:
        loader = yaml.SafeLoader(text)
        loader.yaml_implicit_resolvers = readings(yaml)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        raise places.fault(f"the character {error.character:#x} may not stand in YAML", error.position) from None
    except yaml.MarkedYAMLError as error:
        mark, said = error.problem_mark or error.context_mark, f"{error.problem or error.context}"
        raise (places.fault(said, mark.index) if mark else Fault(said)) from None
    if node is None:
        return None, {}
    walk = Walk(loader, places, len(text) + SPARE)
    return walk.value(node, ()), places.lines


def readings(yaml: Any) -> dict[str, list[tuple[str, Any]]]:
    """How an unquoted word is read, by its first character: as YAML 1.1 does, but for numbers and dates."""
    kept = {
        first: [(tag, pattern) for tag, pattern in readers if tag in KEPT]
        for first, readers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "-+.0123456789":
        kept.setdefault(first, []).extend([(TAG + "float", FLOAT), (TAG + "int", INTEGER)])
    return kept


class Walk:
    """One pass over the nodes of a text; a node with an alias is met, and copied, at each of its places."""

    def __init__(self, loader: Any, places: Places, limit: int) -> None:
        self.loader, self.places, self.left = loader, places, limit

    def value(self, node: Any, path: KeyPath, key: Any = None) -> Any:
        self.count(node)
        # A block starts below its key; who looks for it looks for the key.
        shown = key if key is not None and getattr(node, "flow_style", None) is False else node
        self.places.put(path, shown.start_mark.index)
        if node.id == "scalar":
            return self.scalar(node)
        if node.tag not in (TAG + "map", TAG + "seq"):
            raise self.fault(f"the tag {short(node.tag)} is not read here: only plain values are", node)
        if node.id == "sequence":
            return [self.value(item, (*path, position)) for position, item in enumerate(node.value)]
        return {name: self.value(item, (*path, name), key) for name, (key, item) in self.pairs(node).items()}

    def scalar(self, node: Any) -> Any:
        if node.tag not in PLAIN:
            raise self.fault(f"the tag {short(node.tag)} is not read here: only plain values are", node)
        try:
            return self.loader.construct_object(node)
        except (ValueError, KeyError, IndexError):  # `!!int many`, `0x_`, a number of thousands of digits
            raise self.fault(f"this is not a value of type {short(node.tag)}", node) from None

    def pairs(self, node: Any) -> dict[str, tuple[Any, Any]]:
        """The keys of a mapping, its own before those that `<<` brings, with their nodes."""
        self.count(node)
        own: dict[str, tuple[Any, Any]] = {}
        for key, item in node.value:
            name = self.name(key)
            if name in own:
                raise self.places.twice(name, key.start_mark.index, self.places.line(own[name][0].start_mark.index))
            own[name] = key, item
        merged = own.get("<<")
        if merged is None or merged[0].tag != TAG + "merge":
            return own
        del own["<<"]
        return {**self.inherited(merged[1]), **own}

    def inherited(self, node: Any) -> dict[str, tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = {}
        for source in node.value if node.id == "sequence" else [node]:
            if source.id != "mapping":
                raise self.fault("<< takes a mapping, or a list of them", source)
            found = {**self.pairs(source), **found}  # the first of a list wins
        return found

    def name(self, key: Any) -> str:
        if key.id != "scalar" or key.tag not in (TAG + "str", TAG + "merge"):
            kind = short(key.tag)
            raise self.fault(f"a key is a text, and this one is read as {kind}: put it in quotes", key)
        return str(key.value)

    def count(self, node: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.fault("the aliases of this file unfold into too many values", node)

    def fault(self, message: str, node: Any) -> Fault:
        return self.places.fault(message, node.start_mark.index)


def short(tag: str) -> str:
    """`!!int` for the long name that YAML gives it."""
    return "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag

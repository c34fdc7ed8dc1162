"""YAML: plain values only, and the line of each.

An unquoted word is read as PyYAML's safe loader reads it, or what PyYAML writes would come back as something else. So
`1e-3` is a text, which is seldom meant, and a remark says so. Dates stay texts, as they would in JSON. A tag that
would build an object is refused, and so are aliases that unfold into far more than the file holds.
"""

from __future__ import annotations

from typing import Any

from torcheer.config.line_numbers import Fault, KeyPath, Places
from torcheer.config.number_fields import number_in

TAG = "tag:yaml.org,2002:"
PLAIN = {TAG + name for name in ("str", "int", "float", "bool", "null")}
KEPT = {TAG + name for name in ("bool", "null", "merge", "int", "float")}  # of YAML 1.1's readings of an unquoted word
SPARE = 10_000  # values that aliases may add to those a file holds


def parse(text: str) -> tuple[Any, Places]:
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
        return None, places
    walk = Walk(loader, places, len(text) + SPARE)
    return walk.value(node, ()), places


def readings(yaml: Any) -> dict[str, list[tuple[str, Any]]]:
    """How an unquoted word is read, by its first character: as YAML 1.1 does, but for dates."""
    return {
        first: [(tag, pattern) for tag, pattern in readers if tag in KEPT]
        for first, readers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


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
        if node.tag == TAG + "str" and "e" in node.value.lower() and (number := number_in(node.value)):
            self.remark_on(node, number)
        try:
            return self.loader.construct_object(node)
        except (ValueError, KeyError, IndexError):  # `!!int many`, `0x_`, a number of thousands of digits
            raise self.fault(f"this is not a value of type {short(node.tag)}", node) from None

    def remark_on(self, node: Any, number: str) -> None:
        """Say that an unquoted word is no number, though it looks like one."""
        text = node.value
        if node.end_mark.index - node.start_mark.index != len(text):  # in quotes, or under a tag
            return
        said = "is a text: in YAML the digits of a number with an exponent have a point, and the exponent has a sign"
        remark = f"{text} {said}. Write {number} for the number, '{text}' for the text"
        self.places.remark(remark, node.start_mark.index)

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

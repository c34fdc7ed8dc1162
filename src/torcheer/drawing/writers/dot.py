"""A picture as Graphviz DOT text: what is folded here is one node there, open boxes are clusters."""

from __future__ import annotations

from typing import NamedTuple

from torcheer.drawing.items.box_text import shape_text
from torcheer.drawing.items.item import GRADIENT, KEPT, STILL
from torcheer.drawing.layout.picture import Picture, View
from torcheer.drawing.looks.colours import LIGHT, family_colours, gradient_fill

SHAPES = {"input": "oval", "output": "oval", "pill": "oval", "merge": "circle", "parameter": "note", "buffer": "note"}
EDGES = {
    GRADIENT: f' dir=back color="{LIGHT.gradient}"',  # it ranks as the forward pass does, and points the other way
    KEPT: f' style=dotted color="{LIGHT.kept}"',
}


def write_dot(picture: Picture, name: str) -> str:
    """DOT text of everything visible."""
    lines = [f"digraph {_quoted(name)} {{", f"  rankdir={'TB' if picture.down else 'LR'};"]
    lines += ['  node [shape=box style="rounded,filled" fillcolor=white fontname="Helvetica"];']
    members = _Members({}, {})
    _cluster(picture.root, 0, "  ", lines, members)
    lines += _edges(picture, members)
    return "\n".join([*lines, "}"]) + "\n"


class _Members(NamedTuple):
    """What the items of a drawing became."""

    leaf: dict[int, str]  # item -> its node
    stack: dict[int, tuple[int, int]]  # item in a stack of which one module is shown -> the stack, and which module


def _cluster(view: View, first: int, indent: str, lines: list[str], members: _Members) -> None:
    start = first
    if view.stack is not None:
        first += view.stack.first[-1]
    for inner, offset in zip(view.inside, view.first):
        at = first + offset
        if not inner.open:
            size = inner.plan.size if inner.plan else 1
            members.leaf.update(dict.fromkeys(range(at, at + size), f"n{at}"))
            lines.append(f"{indent}n{at} [{_look(inner)}];")
        elif inner.plan and inner.plan.sort == "stack":
            _cluster(inner, at, indent, lines, members)
        else:
            times = f" ×{inner.stack.face.times}" if inner.stack else ""
            title = f"{inner.name} {inner.face.kind}{times}".strip()
            lines += [f"{indent}subgraph cluster_{at}_{len(indent)} {{", f"{indent}  label={_quoted(title)};"]
            _cluster(inner, at, indent + "  ", lines, members)
            lines.append(f"{indent}}}")
    if view.stack is not None:
        size = view.stack.size // view.stack.face.times
        for item in range(start, start + view.stack.size):  # those that are not shown are as the one that is
            members.stack.setdefault(item, (start, (item - start) // size))
            members.leaf[item] = members.leaf[first + (item - start) % size]


def _look(view: View) -> str:
    face = view.face
    title = " ".join(word for word in (view.name, face.kind, f"×{face.times}" if face.times > 1 else "") if word)
    fill, line = family_colours(face.family, LIGHT)
    if face.look == "gradient":
        fill, line = gradient_fill(LIGHT), LIGHT.gradient
    shape = SHAPES.get(face.look, "box")
    label = _quoted(
        "\\n".join(part for part in (_escaped(title), *map(_escaped, face.body.split("\n"))) if part), ready=True
    )
    return f'label={label} shape={shape} fillcolor="{face.fill or fill}" color="{face.stroke or line}"'


def _edges(picture: Picture, members: _Members) -> list[str]:
    items = picture.scene.items
    position = {item.number: place for place, item in enumerate(items)}
    found: dict[str, None] = {}
    for place, item in enumerate(items):
        for (parent, output), name in item.parents:
            origin = position[parent]
            source, target = members.leaf[origin], members.leaf[place]
            one, other = members.stack.get(origin), members.stack.get(place)
            between = (
                one and other and one[0] == other[0] and one[1] != other[1]
            )  # from one module of a stack to the next
            loop = origin >= place
            if between or (source == target and not loop):
                continue
            shapes = items[origin].shapes
            shape = shape_text(shapes[output]) if output < len(shapes) else ""
            more = f" headlabel={_quoted(name)}" if name else ""
            more += f' taillabel="{output}"' if len(shapes) > 1 else ""
            more += " constraint=false style=dashed" if loop else ""
            more += EDGES.get(items[origin].carries[output] if output < len(items[origin].carries) else STILL, "")
            found[f"  {source} -> {target} [label={_quoted(shape)}{more}];"] = None
    return list(found)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str, *, ready: bool = False) -> str:
    return f'"{text if ready else _escaped(text)}"'

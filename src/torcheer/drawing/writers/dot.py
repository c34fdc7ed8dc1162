"""Write a drawing as Graphviz DOT text: closed boxes become nodes, open boxes clusters."""

from __future__ import annotations

from typing import NamedTuple

from torcheer.drawing.items.item import GRADIENT, KEPT, STILL
from torcheer.drawing.layout.picture import BoxView, Picture
from torcheer.drawing.looks.colours import LIGHT, family_colours, gradient_fill
from torcheer.terminal import human_shape

SHAPES = {"input": "oval", "output": "oval", "pill": "oval", "merge": "circle", "parameter": "note", "buffer": "note"}
EDGES = {
    GRADIENT: f' dir=back color="{LIGHT.gradient}"',  # ranked like the forward pass, with the arrow reversed
    KEPT: f' style=dotted color="{LIGHT.kept}"',
}


def write_dot(picture: Picture, name: str) -> str:
    """Return DOT text of everything visible."""
    lines = [f"digraph {_quote(name)} {{", f"  rankdir={'TB' if picture.down else 'LR'};"]
    lines += ['  node [shape=box style="rounded,filled" fillcolor=white fontname="Helvetica"];']
    members = _Members({}, {})
    _cluster(picture.root, 0, "  ", lines, members)
    lines += _edges(picture, members)
    return "\n".join([*lines, "}"]) + "\n"


class _Members(NamedTuple):
    """Where the items of a drawing are in the DOT graph."""

    leaf: dict[int, str]  # item -> its node
    stack: dict[int, tuple[int, int]]  # item in a stack of which one module is shown -> the stack, and which module


def _cluster(view: BoxView, first: int, indent: str, lines: list[str], members: _Members) -> None:
    start = first
    if view.stack is not None:
        first += view.stack.first[-1]
    for inner, offset in zip(view.inside, view.first):
        at = first + offset
        if not inner.open:
            size = inner.plan.size if inner.plan else 1
            members.leaf.update(dict.fromkeys(range(at, at + size), f"n{at}"))
            lines.append(f"{indent}n{at} [{_attributes(inner)}];")
        elif inner.plan and inner.plan.sort == "stack":
            _cluster(inner, at, indent, lines, members)
        else:
            times = f" ×{inner.stack.face.times}" if inner.stack else ""
            title = f"{inner.name} {inner.face.kind}{times}".strip()
            lines += [f"{indent}subgraph cluster_{at}_{len(indent)} {{", f"{indent}  label={_quote(title)};"]
            _cluster(inner, at, indent + "  ", lines, members)
            lines.append(f"{indent}}}")
    if view.stack is not None:
        size = view.stack.size // view.stack.face.times
        for item in range(start, start + view.stack.size):  # items that are not shown map to those of the shown module
            members.stack.setdefault(item, (start, (item - start) // size))
            members.leaf[item] = members.leaf[first + (item - start) % size]


def _attributes(view: BoxView) -> str:
    face = view.face
    title = " ".join(word for word in (view.name, face.kind, f"×{face.times}" if face.times > 1 else "") if word)
    fill, line = family_colours(face.family, LIGHT)
    if face.look == "gradient":
        fill, line = gradient_fill(LIGHT), LIGHT.gradient
    shape = SHAPES.get(face.look, "box")
    label = _quote(
        "\\n".join(part for part in (_escape(title), *map(_escape, face.body.split("\n"))) if part), escaped=True
    )
    return f'label={label} shape={shape} fillcolor="{face.fill or fill}" color="{face.stroke or line}"'


def _edges(picture: Picture, members: _Members) -> list[str]:
    items = picture.scene.items
    position = {item.number: place for place, item in enumerate(items)}
    lines: dict[str, None] = {}
    for place, item in enumerate(items):
        for (parent, output), name in item.parents:
            origin = position[parent]
            source, target = members.leaf[origin], members.leaf[place]
            start, end = members.stack.get(origin), members.stack.get(place)
            # Edges from one module of a stack to the next are not drawn.
            between = start and end and start[0] == end[0] and start[1] != end[1]
            loop = origin >= place
            if between or (source == target and not loop):
                continue
            shapes = items[origin].shapes
            shape = human_shape(shapes[output]) if output < len(shapes) else ""
            attributes = f" headlabel={_quote(name)}" if name else ""
            attributes += f' taillabel="{output}"' if len(shapes) > 1 else ""
            attributes += " constraint=false style=dashed" if loop else ""
            attributes += EDGES.get(items[origin].carries[output] if output < len(items[origin].carries) else STILL, "")
            lines[f"  {source} -> {target} [label={_quote(shape)}{attributes}];"] = None
    return list(lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quote(text: str, *, escaped: bool = False) -> str:
    return f'"{text if escaped else _escape(text)}"'

"""A picture as Graphviz DOT text: what is folded here is one node there, open boxes are clusters."""

from __future__ import annotations

from torcheer.drawing.colours import LIGHT, family_colours
from torcheer.drawing.picture import Picture, View

SHAPES = {"input": "oval", "output": "oval", "pill": "oval", "merge": "circle", "parameter": "note", "buffer": "note"}


def write_dot(picture: Picture, name: str) -> str:
    """DOT text of everything visible."""
    lines = [f"digraph {_quoted(name)} {{", f"  rankdir={'TB' if picture.down else 'LR'};"]
    lines += ['  node [shape=box style="rounded,filled" fillcolor=white fontname="Helvetica"];', "  compound=true;"]
    leaf_of: dict[int, str] = {}
    _cluster(picture.root, 0, "  ", lines, leaf_of)
    lines += _edges(picture, leaf_of)
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(view: View, first: int, indent: str, lines: list[str], leaf_of: dict[int, str]) -> None:
    if view.stack is not None:
        leaf_of.update(_twins(view, first))
        first += view.stack.first[-1]
    for inner, offset in zip(view.inside, view.first):
        start = first + offset
        if not inner.open:
            size = inner.plan.size if inner.plan else 1
            leaf_of.update(dict.fromkeys(range(start, start + size), f"n{start}"))
            lines.append(f"{indent}n{start} [{_look(inner)}];")
        elif inner.plan and inner.plan.sort == "stack":
            _cluster(inner, start, indent, lines, leaf_of)
        else:
            times = f" ×{inner.stack.face.times}" if inner.stack else ""
            title = f"{inner.name} {inner.face.kind}{times}".strip()
            lines += [f"{indent}subgraph cluster_{start}_{len(indent)} {{", f"{indent}  label={_quoted(title)};"]
            _cluster(inner, start, indent + "  ", lines, leaf_of)
            lines.append(f"{indent}}}")


def _twins(view: View, first: int) -> dict[int, str]:
    """The items of modules that are not shown, as -1: their edges are those of the one that is."""
    assert view.stack is not None
    return dict.fromkeys(range(first, first + view.stack.first[-1]), "")


def _look(view: View) -> str:
    face = view.face
    title = " ".join(word for word in (view.name, face.kind, f"×{face.times}" if face.times > 1 else "") if word)
    fill, line = family_colours(face.family, LIGHT)
    shape = SHAPES.get(face.look, "box")
    label = _quoted("\\n".join(part for part in (_escaped(title), _escaped(face.body)) if part), ready=True)
    return f'label={label} shape={shape} fillcolor="{face.fill or fill}" color="{face.stroke or line}"'


def _edges(picture: Picture, leaf_of: dict[int, str]) -> list[str]:
    position = {item.number: place for place, item in enumerate(picture.scene.items)}
    found: dict[tuple[str, str], str] = {}
    for place, item in enumerate(picture.scene.items):
        for (parent, output), name in item.parents:
            source, target = leaf_of.get(position[parent], ""), leaf_of.get(place, "")
            if not source or not target:
                continue
            loop = position[parent] >= place
            if source == target and not loop:
                continue
            shapes = picture.scene.items[position[parent]].shapes
            shape = "×".join(map(str, shapes[output])) if output < len(shapes) else ""
            more = f" headlabel={_quoted(name)}" if name else ""
            more += " constraint=false style=dashed" if loop else ""
            found.setdefault((source, target), f"  {source} -> {target} [label={_quoted(shape)}{more}];")
    return list(found.values())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str, *, ready: bool = False) -> str:
    return f'"{text if ready else _escaped(text)}"'

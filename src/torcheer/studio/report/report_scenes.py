"""The 3D scenes of a report: the pictures of each layer at chosen moments, as fine as there is room for."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from torcheer.control.loop_messages import Moment
from torcheer.errors import BadArgument
from torcheer.studio.connections.messages import Look
from torcheer.studio.report.report_blocks import Blocks, pack
from torcheer.studio.report.report_source import ReportSource
from torcheer.studio.sources.layer_frames import LayerFrames, parse_frame
from torcheer.terminal import first_names, plural

MOST_MOMENTS: Final = 50
_CELLS: Final = (1 << 16, 1 << 14, 1 << 12, 1 << 10, 1 << 8)  # of a layer's picture, at most: the finest that fit
_FEW_MOMENTS: Final = 5  # as many are kept before pictures get their finest

Scene = tuple[bytes, bool]  # a block, and whether some picture in it is reduced


def choose_moments(moments: Sequence[Moment], steps: Sequence[int] | None) -> list[Moment]:
    """The moments of these steps; without steps at most 50, evenly spread, the first and the last among them."""
    if steps is None:
        return spread(moments, MOST_MOMENTS)
    known = {moment.step for moment in moments}
    unknown = [step for step in steps if step not in known]
    if unknown:
        there = first_names([str(step) for step in sorted(known)], 12) or "none"
        raise BadArgument(f"report: no state of {first_names(map(str, unknown))} was recorded; steps with one: {there}")
    return [moment for moment in moments if moment.step in set(steps)]


def spread(moments: Sequence[Moment], count: int) -> list[Moment]:
    """At most `count` of them, evenly; the last one always."""
    if len(moments) <= count:
        return list(moments)
    if count < 2:
        return list(moments[-1:])[:count]
    places = [round(number * (len(moments) - 1) / (count - 1)) for number in range(count)]
    return [moments[place] for place in places]


def add_scenes(blocks: Blocks, source: ReportSource, moments: list[Moment]) -> tuple[list[Moment], list[str]]:
    """Add the scenes of these moments, or of some of them; returns those, and sentences about what is left out."""
    variables = [variable.name for variable in source.net.variables] if source.net else []
    if not moments or not variables:
        return [], []
    cells, count = _fitting(blocks.left_bytes, source, variables, moments)
    shown, reduced = list[Moment](), False
    for moment in reversed(spread(moments, count)):
        scenes = [(variable, *scene_of(source, variable, moment.id, cells)) for variable in variables]
        added = [blocks.add(["scene", variable, moment.id], scene) for variable, scene, _ in scenes]
        if not any(added):
            break
        shown.insert(0, moment)
        reduced |= any(is_reduced for _, _, is_reduced in scenes)
    return shown, list(_left_out(len(moments) - len(shown), len(moments), cells if reduced else 0))


def _fitting(
    room_bytes: int, source: ReportSource, variables: list[str], moments: list[Moment]
) -> tuple[int, int]:  # fmt: skip
    """The cells of a picture and the number of moments that fit: all moments, else fewer at a medium size."""
    few = min(len(moments), _FEW_MOMENTS)
    counts: dict[int, int] = {}
    for cells in _CELLS:
        packed = sum(len(pack(scene_of(source, name, moments[-1].id, cells)[0])) + 300 for name in variables)
        counts[cells] = min(len(moments), int(room_bytes / (packed * 1.1)))
        if counts[cells] == len(moments):
            return cells, len(moments)
    cells = next((cells for cells in _CELLS if cells <= 1 << 12 and counts[cells] >= few), _CELLS[-1])
    return cells, max(1, counts[cells])


def scene_of(source: ReportSource, variable: str, moment: int, most_cells: int) -> Scene:
    """All layers of a moment: the length of a JSON head (what is missing), the head, then each frame and its length."""
    missing, frames, reduced = dict[str, str](), list[bytes](), False
    assert source.net is not None
    for layer, frame in LayerFrames(most_cells).messages(source, source.net, Look(0, variable), moment):
        if frame is None:
            missing[layer] = source.why(moment, layer, variable)
        else:
            frames.append(frame)
            reduced |= parse_frame(frame)[0].block != (1, 1)
    head = json.dumps({"missing": missing}).encode()
    parts = [part for piece in (head, *frames) for part in (struct.pack("<I", len(piece)), piece)]
    return b"".join(parts), reduced


def _left_out(moments: int, of: int, cells: int) -> Iterator[str]:
    if moments:
        yield f"The values of {moments:,} of {plural(of, 'state')}: there was no room for them."
    if cells:
        yield (
            f"Large layers are drawn with at most {cells:,} cells: a cell shows the number of its block that is "
            f"farthest from zero. Ranges and counts of NaN are those of all numbers."
        )

"""The logit lens: what a decoder would say after each block, if it ended there.

One pass: the last block hands on the residual streams of all layers as one larger batch, so that the model's own end
(norm, projections, soft caps) makes logits of each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.record.tensor_trees import leaves
from torcheer.drawing.heat_map import HeatMap
from torcheer.errors import BadArgument, UnknownLayer
from torcheer.inputs import Call
from torcheer.interpret.place_hooks import Places
from torcheer.interpret.result_tables import as_table
from torcheer.terminal import plural


@dataclass(frozen=True, eq=False)
class Lens:
    """The logits after each layer, and what can be read from them."""

    layers: tuple[str, ...]
    logits: Tensor  # (layers, batch, positions, words)
    positions: tuple[int, ...]  # of the sequence
    decode: Any = None  # from the number of a word to its text

    @property
    def probabilities(self) -> Tensor:
        """The probabilities of all words, of the shape of `logits`."""
        return self.logits.float().softmax(-1)

    def top(self, k: int = 5) -> tuple[Tensor, Tensor]:
        """Return the probabilities and the numbers of the k likeliest words: (layers, batch, positions, k)."""
        values, words = self.probabilities.topk(k, -1)
        return values, words

    @property
    def table(self) -> Any:
        """One row per layer, sample and position: the likeliest word, and how the model's final word stands there."""
        probabilities = self.probabilities
        values, words = probabilities.max(-1)
        final = words[-1].expand_as(words)
        share = probabilities.gather(-1, final[..., None])[..., 0]
        rank = (probabilities > share[..., None]).sum(-1) + 1
        rows = []
        for layer, name in enumerate(self.layers):
            for sample in range(words.shape[1]):
                for place, position in enumerate(self.positions):
                    at = (layer, sample, place)
                    rows.append({
                        "layer": name, "sample": sample, "position": position, "word": self._text(int(words[at])),
                        "probability": float(values[at]), "final_word": self._text(int(final[at])),
                        "final_probability": float(share[at]), "final_rank": int(rank[at]),
                    })  # fmt: skip
        return as_table(rows)

    def _text(self, word: int) -> Any:
        return word if self.decode is None else self.decode(word)

    def draw(self, path: str | os.PathLike[str] | None = None, *, sample: int = 0) -> HeatMap:
        """Draw the likeliest word of each layer and position, coloured by its probability; write it to `path`, if any.

        - `sample`: of the batch.
        """
        values, words = self.probabilities[:, sample].max(-1)
        texts = [[_visible(str(self._text(int(word)))) for word in row] for row in words]
        columns = [str(position) for position in self.positions]
        heat_map = HeatMap(
            values.tolist(), list(self.layers), columns, title="Logit lens", texts=texts,
            caption=f"the likeliest word after each layer; sample {sample}", value="probability", axis="position",
        )  # fmt: skip
        if path is not None:
            heat_map.save(path)
        return heat_map

    def __repr__(self) -> str:
        _, batch, positions, words = self.logits.shape
        samples = f"{plural(batch, 'sample')} × {plural(positions, 'position')} × {plural(words, 'word')}"
        return f"<Lens of {plural(len(self.layers), 'layer')}: {samples}; .top(5), .table, .draw('lens.svg')>"


def read_streams(places: Places, call: Call, positions: Any, tokenizer: Any) -> Lens:
    """Read what the model would say at each place of its residual stream, in one call."""
    args, kwargs = call
    model = places.model
    names = list(places.named)
    last = places.named[_END] = places.roles.resolve("resid[-1]")[0]
    reading = _Reading(names, positions)
    has_head = "unembed" in places.roles.places
    with torch.no_grad():
        try:
            with places.hooked(reading.handlers() | {_END: reading.hand_on_all}):
                logits = _logits(model(*args, **kwargs), len(names), None if has_head else reading.width)
        except RuntimeError:
            if not reading.handed_on:
                raise
            each = []  # its end counts the samples: one pass per layer
            for name in names:
                with places.hooked({_END: partial(reading.hand_on, name)}):
                    each.append(_logits(model(*args, **kwargs), 1, None if has_head else reading.width))
            logits = torch.cat(each)
    if not reading.handed_on:
        raise UnknownLayer(f"lens: {last.path} was not called: its output is where the layers are read")
    return Lens(tuple(names), logits, tuple(reading.chosen), _decoder(tokenizer))


_END = ""  # the name of the place where the end of the model begins


class _Reading:
    """The streams of one pass, and what the end of the model receives instead of the last."""

    def __init__(self, names: list[str], positions: Any) -> None:
        self.names, self.positions = names, positions
        self.streams: dict[str, Tensor] = {}
        self.chosen: list[int] = []
        self.width = 0  # of the streams
        self.handed_on = False

    def handlers(self) -> dict[str, Any]:
        """Return a handler per layer, which keeps its stream."""
        return {name: partial(self._keep, name) for name in self.names}

    def _keep(self, name: str, x: Tensor) -> None:
        if name in self.streams:
            raise BadArgument(f"lens: {name} is called several times in one pass, so it is no layer of its own")
        self.streams[name] = x

    def hand_on_all(self, x: Tensor) -> Tensor:
        """Return the streams of all layers as one batch."""
        missing = [name for name in self.names if name not in self.streams]
        if missing:
            raise UnknownLayer(f"lens: {missing[0]!r} had not run when the last block ended; give residual streams")
        self.chosen, self.width = _chosen(self.positions, x.shape[1]), x.shape[-1]
        streams = [_rows(self.streams[name], self.chosen, x) for name in self.names]
        self.handed_on = True
        return torch.cat(streams)

    def hand_on(self, name: str, x: Tensor) -> Tensor:
        """Return the stream of one layer."""
        return _rows(self.streams[name], self.chosen, x)


def _visible(word: str) -> str:
    """Return a word with its white space shown: tokenizers mark a space before it by a letter of their own."""
    shown = word.replace("Ġ", "·").replace("▁", "·").replace("Ċ", "\\n").replace("\n", "\\n").replace("\t", "\\t")
    return f"·{shown[1:]}" if shown.startswith(" ") else shown


def _rows(stream: Tensor, positions: list[int], like: Tensor) -> Tensor:
    if stream.shape != like.shape:
        raise BadArgument(
            f"lens: a layer's value has shape {tuple(stream.shape)}, the last block's {tuple(like.shape)}; residual "
            "streams ('resid[*]', 'resid[0].in') have that"
        )
    return stream if len(positions) == stream.shape[1] else stream[:, positions]


def _chosen(positions: Any, length: int) -> list[int]:
    if positions is None:
        return list(range(length))
    if isinstance(positions, slice):
        return list(range(length))[positions]
    numbers = [positions] if isinstance(positions, int) else list(positions)
    wrong = [number for number in numbers if not -length <= number < length]
    if wrong:
        raise BadArgument(f"lens: position {wrong[0]} is not there; the sequence has {length}")
    return [number % length for number in numbers]


def _logits(out: Any, layers: int, width: int | None) -> Tensor:
    """Return the logits in what the model returned, of all layers; `width` is that of streams, if nothing unembeds."""
    logits = getattr(out, "logits", None)
    if not isinstance(logits, Tensor):
        logits = next((tensor for tensor in leaves(out) if tensor.is_floating_point()), None)
        if logits is not None and logits.shape[-1:] == (width,):
            logits = None  # streams
    if logits is None or logits.shape[0] % layers:
        raise BadArgument(f"lens: the model returned no logits but a {type(out).__name__}; give a model with a head")
    if logits.ndim != 3:
        shape = (logits.shape[0] // layers, *logits.shape[1:])
        raise BadArgument(f"lens: the model returned logits of shape {shape}; they need samples, positions and words")
    return logits.reshape(layers, -1, *logits.shape[1:])


def _decoder(tokenizer: Any) -> Any:
    if tokenizer is None or callable(getattr(tokenizer, "decode", None)):
        return None if tokenizer is None else lambda word: tokenizer.decode([word])
    if not callable(tokenizer):
        raise BadArgument(f"lens: tokenizer is a {type(tokenizer).__name__}; give one with `decode`, or a function")
    return tokenizer

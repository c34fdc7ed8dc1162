"""Activation patching: put one value of a clean run into a corrupted one, for each layer and position or head.

Exact: one run of the model per cell. By gradient (attribution patching): two runs and one backward pass estimate all
cells at once, to first order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torcheer.capture.head_columns import Columns
from torcheer.capture.record.tensor_trees import leaves
from torcheer.capture.tensor_parts import TensorPart, positions_tensor
from torcheer.drawing.heat_map import HeatMap
from torcheer.errors import BadArgument
from torcheer.inputs import call_arguments
from torcheer.interpret.place_hooks import Places
from torcheer.interpret.result_tables import as_table
from torcheer.roles import Place
from torcheer.terminal import Progress, plural


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well an estimate agrees with the exact effects, over all cells."""

    pearson: float
    spearman: float
    cells: int

    def __repr__(self) -> str:
        return (
            f"<Agreement over {plural(self.cells, 'cell')}: Pearson {self.pearson:.3f}, Spearman {self.spearman:.3f}>"
        )


@dataclass(eq=False)
class PatchSweep:
    """The metric after each patch, beside the metric of both runs."""

    layers: tuple[str, ...]
    columns: tuple[int, ...]  # positions, or heads
    axis: str  # "position" or "head"
    values: NDArray[Any]  # (layers, columns); NaN where a layer has no such head
    clean: float
    corrupted: float
    method: str
    agreement: Agreement | None = None  # of an estimate with the exact sweep, if both were run
    missing: frozenset[tuple[int, int]] = frozenset()  # cells of heads that a layer does not have, by row and column

    @property
    def effects(self) -> NDArray[Any]:
        """How much each patch changed the metric of the corrupted run."""
        effects: NDArray[Any] = self.values - self.corrupted
        return effects

    @property
    def recovered(self) -> NDArray[Any]:
        """The effects as shares of the way from the corrupted to the clean run; NaN where both are the same."""
        way = self.clean - self.corrupted
        return self.effects / (way if way else np.nan)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per layer and position or head."""
        effects, recovered = self.effects, self.recovered
        return [
            {
                "layer": layer, self.axis: column, "value": float(self.values[i, j]), "effect": float(effects[i, j]),
                "recovered": float(recovered[i, j]),
            }
            for i, layer in enumerate(self.layers)
            for j, column in enumerate(self.columns)
            if (i, j) not in self.missing
        ]  # fmt: skip

    @property
    def table(self) -> Any:
        """The rows as a DataFrame, where pandas is installed."""
        return as_table(self.rows)

    def compare(self, exact: PatchSweep) -> Agreement:
        """Return how well these effects agree with those of another sweep over the same cells."""
        if (self.layers, self.columns, self.axis) != (exact.layers, exact.columns, exact.axis):
            raise BadArgument("compare: the two sweeps have other layers or columns")
        known = ~(np.isnan(self.values) | np.isnan(exact.values))
        mine, theirs = self.effects[known], exact.effects[known]
        return Agreement(_correlation(mine, theirs), _correlation(_ranks(mine), _ranks(theirs)), int(known.sum()))

    def draw(self, path: str | os.PathLike[str] | None = None) -> HeatMap:
        """Draw the effects as a heat map; write it to the file `path`, if any."""
        runs = f"metric {self.clean:.4g} clean, {self.corrupted:.4g} corrupted"
        caption = f"one value of the clean run in the corrupted one, {self.method}; {runs}"
        heat_map = HeatMap(
            self.effects.tolist(), self.layers, [str(column) for column in self.columns], title="Patching",
            caption=f"{caption}; {self.agreement}" if self.agreement else caption, value="change of the metric",
            axis=self.axis, signed=True,
        )  # fmt: skip
        if path is not None:
            heat_map.save(path)
        return heat_map

    def __repr__(self) -> str:
        shape = f"{plural(len(self.layers), 'layer')} × {plural(len(self.columns), self.axis)}"
        agreement = f", {self.agreement}" if self.agreement else ""
        ends = f"clean {self.clean:.4g}, corrupted {self.corrupted:.4g}"
        return f"<PatchSweep of {shape}, {self.method}: {ends}{agreement}; .table, .draw('sweep.svg')>"


class Sweep:
    """The two runs, and what both methods need of them."""

    def __init__(
        self, model: nn.Module, clean: Any, corrupted: Any, metric: Any, layers: Any, positions: Any, heads: Any
    ) -> None:
        self.model, self.metric = model, metric
        self.places = Places(model, layers, "patch_sweep")
        if heads is not None:
            self.places.named = {name: self._with_heads(place) for name, place in self.places.named.items()}
        self.names = list(self.places.named)
        self.corrupted_call = call_arguments(model, corrupted)
        self.heads: dict[str, Columns] = {}
        self.clean_values: dict[str, Tensor] = {}
        with torch.no_grad(), self.places.finding_heads(self.heads):
            self.clean = self._number(self._run(call_arguments(model, clean), self._keeping(self.clean_values)))
        missing = [name for name in self.names if name not in self.clean_values]
        if missing:
            raise BadArgument(f"patch_sweep: {missing[0]!r} was not called in the clean run")
        flat = [name for name, value in self.clean_values.items() if value.ndim < 3]
        if flat:
            shape = tuple(self.clean_values[flat[0]].shape)
            raise BadArgument(f"patch_sweep: {flat[0]} has shape {shape}: no axis of positions after that of samples")
        self.by_head = heads is not None
        self.positions = None if positions is None else list(positions)
        self.columns = self._columns(heads)

    def _with_heads(self, place: Place) -> Place:
        if place.heads:
            return place
        name = f"{place.role.removesuffix('.out')}.z"
        if name not in self.places.roles.places:
            raise BadArgument(f"patch_sweep: {place.role} has no heads; attn[i] and its q, k, v, z have")
        return self.places.roles.places[name]

    def _columns(self, heads: Any) -> list[int]:
        if self.by_head:
            most = max(len(self._head_columns(name)) for name in self.names)
            return list(range(most)) if heads == "all" else list(heads)
        lengths = {value.shape[-2] for value in self.clean_values.values()}
        if len(lengths) > 1 and self.positions is None:
            raise BadArgument(f"patch_sweep: the layers have sequences of {sorted(lengths)} positions; give positions=")
        return self.positions if self.positions is not None else list(range(lengths.pop()))

    def _head_columns(self, name: str) -> list[Tensor]:
        place = self.places.named[name]
        columns = self.heads.get(place.attention, {}).get(place.heads)
        if columns is None:
            raise BadArgument(f"patch_sweep: the heads of {place.attention} could not be found")
        return columns

    def part(self, name: str, column: int) -> TensorPart | None:
        """Return the part of a layer's value that a cell patches; None if the layer has no such head."""
        if not self.by_head:
            length = self.clean_values[name].shape[-2]
            if not -length <= column < length:
                raise BadArgument(f"patch_sweep: position {column} is not there; {name} has {length}")
            return TensorPart(positions=positions_tensor([column % length]))
        columns = self._head_columns(name)
        if not -len(columns) <= column < len(columns):
            return None
        at = None if self.positions is None else positions_tensor(self.positions)
        return TensorPart(columns[column], -1, at)

    def exact(self, progress: bool | None) -> PatchSweep:
        """Run the corrupted inputs once per cell, with that part of the clean run in it."""
        values = np.full((len(self.names), len(self.columns)), np.nan)
        with torch.no_grad(), Progress("patching", values.size, "patches", progress=progress) as shown:
            plain = self._number(self._run(self.corrupted_call, {}))
            for i, name in enumerate(self.names):
                for j, column in enumerate(self.columns):
                    part = self.part(name, column)
                    if part is not None:
                        handler = partial(self._patched, name, part)
                        values[i, j] = self._number(self._run(self.corrupted_call, {name: handler}))
                    shown.add(1)
        return self._result(values, plain, "exact")

    def _patched(self, name: str, part: TensorPart, x: Tensor) -> Tensor:
        clean = self.clean_values[name]
        self._check_shapes(name, x)
        return part.edit(x, lambda _: clean, whole=True)

    def by_gradient(self) -> PatchSweep:
        """Estimate all effects: the difference of the two runs, times the metric's gradient in the corrupted one."""
        seen: dict[str, Tensor] = {}
        with torch.inference_mode(False), torch.enable_grad():
            metric = self.metric(self._run(self.corrupted_call, {n: partial(_watch, seen, n) for n in self.names}))
            if not isinstance(metric, Tensor) or metric.numel() != 1 or not metric.requires_grad:
                raise BadArgument("method='gradient': the metric must be a tensor of one number made from the output")
            gradients = torch.autograd.grad(metric.reshape(()), [seen[name] for name in self.names], allow_unused=True)
        plain = self._number(None, metric.detach())
        values = np.full((len(self.names), len(self.columns)), np.nan)
        for i, (name, gradient) in enumerate(zip(self.names, gradients, strict=True)):
            self._check_shapes(name, seen[name])
            slope = torch.zeros_like(seen[name]) if gradient is None else gradient
            product = (self.clean_values[name].double() - seen[name].detach().double()) * slope.double()
            for j, column in enumerate(self.columns):
                part = self.part(name, column)
                if part is not None:
                    values[i, j] = plain + float(part.read(product).sum())
        return self._result(values, plain, "gradient")

    def _check_shapes(self, name: str, x: Tensor) -> None:
        if x.shape != self.clean_values[name].shape:
            raise BadArgument(
                f"patch_sweep: {name} has shape {tuple(self.clean_values[name].shape)} in the clean run and "
                f"{tuple(x.shape)} in the corrupted one; the two need the same number of tokens"
            )

    def _result(self, values: NDArray[Any], plain: float, method: str) -> PatchSweep:
        axis = "head" if self.by_head else "position"
        cells = [(i, j) for i in range(len(self.names)) for j in range(len(self.columns))]
        missing = frozenset((i, j) for i, j in cells if self.part(self.names[i], self.columns[j]) is None)
        layers, columns = tuple(self.names), tuple(self.columns)
        return PatchSweep(layers, columns, axis, values, self.clean, plain, method, missing=missing)

    def _run(self, call: Any, handlers: dict[str, Any]) -> Any:
        args, kwargs = call
        with self.places.hooked(handlers):
            return self.model(*args, **kwargs)

    def _keeping(self, values: dict[str, Tensor]) -> dict[str, Any]:
        def keep(name: str, x: Tensor) -> None:
            if name in values:
                raise BadArgument(f"patch_sweep: {name} is called several times in one run, so it is no single value")
            values[name] = x.detach().clone()

        return {name: partial(keep, name) for name in self.names}

    def _number(self, out: Any, metric: Any = None) -> float:
        metric = self.metric(out) if metric is None else metric
        if isinstance(metric, Tensor) and metric.numel() != 1:
            shapes = [tuple(tensor.shape) for tensor in leaves(out)[:1]]
            raise BadArgument(f"metric returned a tensor of {tuple(metric.shape)} for outputs of {shapes}; one number")
        return float(metric)


def _watch(seen: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Keep a value of which a gradient will be taken; the model goes on with a copy, which it may write to."""
    seen[name] = x if x.requires_grad else x.detach().requires_grad_()
    return seen[name].clone()


def _correlation(first: NDArray[Any], second: NDArray[Any]) -> float:
    if len(first) < 2 or not first.std() or not second.std():
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    """Return the ranks; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[Any] = ((ends - counts + ends - 1) / 2)[inverse]
    return ranks

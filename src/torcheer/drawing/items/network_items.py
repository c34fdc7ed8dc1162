"""Build the items of a network: one for each layer, in the boxes of its modules, joined by what flows between them."""

from __future__ import annotations

from collections.abc import Iterator

from torcheer.drawing.items.families import FAMILY_OF, family_of_class
from torcheer.drawing.items.item import STILL, Item
from torcheer.network.network_records import Layer, ModuleNode, Network, Projection
from torcheer.records import ModuleCall
from torcheer.terminal import human_shape


def network_items(network: Network) -> list[Item]:
    """Return an item for each layer, in the order in which they ran; attention's weights beside a layer have none."""
    builder = _ItemBuilder(network)
    layers = [layer for layer in network.layers if not layer.relation]
    numbers = {layer.name: number for number, layer in enumerate(layers)}
    items = [builder.item(number, layer) for number, layer in enumerate(layers)]
    for projection in network.projections:
        sender, receiver = numbers.get(projection.sender, -1), numbers.get(projection.receiver, -1)
        if 0 <= sender != receiver >= 0:
            items[receiver].parents.append(((sender, 0), ""))
    return items


class _ItemBuilder:
    def __init__(self, network: Network) -> None:
        self.modules = {module.path: module for module in network.modules}
        self.weights: dict[str, Projection] = {
            projection.receiver: projection for projection in network.projections if projection.kind
        }
        self.loops = {
            projection.sender for projection in network.projections if projection.sender == projection.receiver
        }

    def item(self, number: int, layer: Layer) -> Item:
        """Return the item of a layer, without its parents."""
        address, _, call = layer.name.rpartition(":") if _is_call(layer.name) else (layer.name, "", "1")
        around = tuple(self._around(address, layer.holds, int(call)))
        prefix = f"{around[-1].address}." if around else ""
        name = "output" if layer.holds else layer.name.removeprefix(prefix)
        look = "input" if layer.kind == "Input" else "module" if address in self.modules and not layer.holds else "op"
        item = Item(number, "", (), around, look, layer.kind, shapes=(layer.shape,), carries=(STILL,), label=layer.name)
        if look == "input":
            item.kind = layer.name
        elif layer.holds:
            item.kind = name
        else:
            item.name, item.family = name, family_of_class(layer.kind) or FAMILY_OF.get(layer.kind, "arithmetic")
            item.body = self._body(layer)
        return item

    def _around(self, address: str, holds: bool, call: int) -> Iterator[ModuleCall]:
        """Yield the modules around a layer, outermost first, in its call as far as each was called so often."""
        path = address
        while path and path not in self.modules:
            path = path.rpartition(".")[0]
        chain: list[ModuleNode] = []
        while path and path in self.modules:
            chain.append(self.modules[path])
            path = self.modules[path].parent
        if chain and chain[0].path == address and not holds:
            chain = chain[1:]
        for module in reversed(chain):
            yield ModuleCall(module.path, min(call, module.calls), module.kind)

    def _body(self, layer: Layer) -> str:
        weight = self.weights.get(layer.name)
        parts = ["loops"] if layer.name in self.loops else []
        if weight is not None and weight.kind == "linear" and len(weight.shape) == 2:
            parts.append(f"{weight.shape[1]}→{weight.shape[0]}")
        elif weight is not None and weight.kind == "conv":
            parts.append(_conv_text(weight))
        return " · ".join(parts)


def _is_call(name: str) -> bool:
    """Whether a layer's name ends with the number of a call: "relu:3"."""
    return name.rpartition(":")[2].isdecimal() and ":" in name and name.partition(":")[0] != ""


def _conv_text(weight: Projection) -> str:
    """Format a convolution as the drawing of a pass does: "3→64 7×7 /2 pad 3"."""
    texts = [f"{weight.shape[1] * weight.groups}→{weight.shape[0]}", human_shape(weight.shape[2:])]
    for word, numbers, default in (
        ("/", weight.stride, 1),
        ("pad ", weight.padding, 0),
        ("dilated ", weight.dilation, 1),
    ):
        if any(number != default for number in numbers):
            texts.append(word + "×".join(map(str, dict.fromkeys(numbers))))
    return " ".join([*texts, f"groups {weight.groups}"] if weight.groups > 1 else texts)

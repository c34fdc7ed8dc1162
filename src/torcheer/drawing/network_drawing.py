"""`draw_network`: the drawing of a network whose operations are not at hand, as of a live run, for the studio."""

from __future__ import annotations

from torcheer.drawing.items.item import Item
from torcheer.drawing.items.network_items import network_items
from torcheer.drawing.layout.picture import picture
from torcheer.drawing.layout.plans import plan_scene
from torcheer.drawing.looks.style import style_of
from torcheer.drawing.writers.graph_text import GraphText, graph_text
from torcheer.drawing.writers.html_page import ItemDetails, details_text, page_data
from torcheer.network.network_records import Network
from torcheer.records import garbage_collection_off
from torcheer.terminal import plural


def draw_network(network: Network) -> GraphText:
    """Return what the studio's Graph tab draws of a network: a box for each module, a small one for each layer."""
    layers = {layer.name: layer for layer in network.layers}

    def details_of(item: Item) -> ItemDetails:
        layer = layers[item.label]
        facts = [("type", layer.kind), ("of an item", " × ".join(map(str, layer.shape)))]
        facts += [("part", name) for name in layer.also[:12]]
        return layer.name, item.path[-1].address if item.path else "", [fact for fact in facts if fact[1]]

    with garbage_collection_off(ages=True):
        scene = plan_scene(network_items(network))
        layout = picture(scene, depth=None, direction="auto", style=style_of(None))
        header = [network.name or "network", plural(len(scene.items), "layer")]
        data = page_data(layout, header=header, theme="auto", colour_by="kind", time_name="time")
        return graph_text(data, [item.label for item in scene.items], lambda: details_text(layout, details_of, {}))

"""The studio: a network's live state in 3D, its plots and its controls, in the browser.

from torcheer.studio import State, Network, NetView

The viewer's process imports this package too, without torch: each name is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torcheer.public_names import lazy_names

if TYPE_CHECKING:
    from torcheer.etorch.etorch_network import Layer, Network, Projection
    from torcheer.etorch.netview import NetView
    from torcheer.etorch.simulation import Simulation
    from torcheer.etorch.state import State
    from torcheer.host import show
    from torcheer.runlog.run_tables import logs
    from torcheer.runlog.table import Table
    from torcheer.wire.open_viewer import Viewer

__all__ = ["Layer", "NetView", "Network", "Projection", "Simulation", "State", "Table", "Viewer", "logs", "show"]

if not TYPE_CHECKING:  # to type checkers a name that is not imported above is an error
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Layer": "torcheer.etorch.etorch_network",
            "NetView": "torcheer.etorch.netview",
            "Network": "torcheer.etorch.etorch_network",
            "Projection": "torcheer.etorch.etorch_network",
            "Simulation": "torcheer.etorch.simulation",
            "State": "torcheer.etorch.state",
            "Table": "torcheer.runlog.table",
            "Viewer": "torcheer.wire.open_viewer",
            "logs": "torcheer.runlog.run_tables",
            "show": "torcheer.host",
        },
    )

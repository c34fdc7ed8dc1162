"""The studio: a network's live state in 3D, its plots and its controls, in the browser.

from torcheer.studio import State, Network, NetView

The viewer's process imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torcheer.studio.netview import NetView
    from torcheer.studio.network import Layer, Network, Projection
    from torcheer.studio.run_logs import logs
    from torcheer.studio.showing import show
    from torcheer.studio.simulation import Simulation
    from torcheer.studio.starting import Viewer
    from torcheer.studio.state import State
    from torcheer.studio.tables import Table

__all__ = ["Layer", "NetView", "Network", "Projection", "Simulation", "State", "Table", "Viewer", "logs", "show"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(_home(name), name)
    globals()[name] = value
    return value


def _home(name: str) -> Any:
    """The module that a public name lives in."""
    match name:
        case "NetView":
            from torcheer.studio import netview

            return netview
        case "Simulation":
            from torcheer.studio import simulation

            return simulation
        case "State":
            from torcheer.studio import state

            return state
        case "Table":
            from torcheer.studio import tables

            return tables
        case "Viewer":
            from torcheer.studio import starting

            return starting
        case "logs":
            from torcheer.studio import run_logs

            return run_logs
        case "show":
            from torcheer.studio import showing

            return showing
        case _:
            from torcheer.studio import network

            return network


def __dir__() -> list[str]:
    return sorted(__all__)

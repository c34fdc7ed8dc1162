"""What a process that is looked at offers to a viewer: a socket, a ring of values, a description of its network.

from torcheer.host import Host, Budget

A viewer imports this package too and does without torch: each name is loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torcheer.host.describing import describe
    from torcheer.host.host import Host, HostBusy
    from torcheer.host.pacing import Budget
    from torcheer.host.probing import Probing
    from torcheer.host.wire import Wire, connect

__all__ = ["Budget", "Host", "HostBusy", "Probing", "Wire", "connect", "describe"]


_HOMES = {"Host": "host", "HostBusy": "host", "Budget": "pacing", "Wire": "wire", "connect": "wire",
          "Probing": "probing", "describe": "describing"}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(_home(_HOMES[name]), name)
    globals()[name] = value
    return value


def _home(module: str) -> Any:
    """The module that a public name lives in."""
    match module:
        case "host":
            from torcheer.host import host

            return host
        case "pacing":
            from torcheer.host import pacing

            return pacing
        case "wire":
            from torcheer.host import wire

            return wire
        case "probing":
            from torcheer.host import probing

            return probing
        case _:
            from torcheer.host import describing

            return describing


def __dir__() -> list[str]:
    return sorted(__all__)

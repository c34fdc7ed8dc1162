"""`config` and `summary` of a run as W&B's scripts use them: items and attributes are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.wandb_parts.wandb_errors import ConfigError, NoSuchSetting
from torcheer.terminal import did_you_mean, short_repr


class Config(MutableMapping[str, Any]):
    """`wandb.config`: what changes it is written at once; a value that is there changes only when that is allowed."""

    _is_locked = True

    def __init__(self, changed: Callable[[Iterable[str]], None], allow_val_change: bool = False) -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_changed", changed)
        object.__setattr__(self, "_is_locked", type(self)._is_locked and not allow_val_change)

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        del self._items[name]
        self._changed((name,))

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._items:
            return self._items[name]
        names = [] if name.startswith("_") else list(self)
        raise NoSuchSetting(f"there is no {name!r} among {', '.join(names) or 'none'}.{did_you_mean(name, names)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __repr__(self) -> str:
        return repr(self._items)

    def update(self, entries: Any = (), /, allow_val_change: Any = None, **more: Any) -> None:
        """Add or change several at once; a mapping, or a namespace such as argparse's."""
        if not isinstance(entries, Mapping):
            entries = dict(entries or ()) if _is_pairs(entries) else vars(entries)
        changed = {str(name): value for name, value in {**entries, **more}.items()}
        if self._is_locked and not allow_val_change:
            for name, value in changed.items():
                self._refuse_change(name, value)
        self._items.update(changed)
        self._changed(changed)

    def _refuse_change(self, name: str, value: Any) -> None:
        before = self._items.get(name)
        if name in self._items and plain_settings({"": before}) != plain_settings({"": value}):
            raise ConfigError(
                f"wandb.config has {name}={short_repr(before)} already, and would be changed to {short_repr(value)}. "
                "If that is meant: config.update({…}, allow_val_change=True)"
            )

    def setdefaults(self, entries: Mapping[str, Any]) -> None:
        """Add those that are not there yet."""
        self.update({name: value for name, value in entries.items() if name not in self})

    def as_dict(self) -> dict[str, Any]:
        """All of them."""
        return dict(self._items)

    def persist(self) -> None:
        """Nothing: what changes is written at once."""


class Summary(Config):
    """`wandb.summary`: the last of each value, the best where `define_metric` said so, and what a script puts there."""

    _is_locked = False


def _is_pairs(entries: Any) -> bool:
    return isinstance(entries, list | tuple) or not hasattr(entries, "__dict__")

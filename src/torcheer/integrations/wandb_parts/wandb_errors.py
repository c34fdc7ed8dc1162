"""W&B's exceptions by their own names, for scripts that catch them; each is one of ours, too."""

from __future__ import annotations

from torcheer.errors import BadArgument, WrongInputs

__all__ = ["CommError", "ConfigError", "Error", "NoSuchSetting", "UsageError", "WrongType"]


class Error(BadArgument):
    """What W&B raises, such as `log` without a run."""


class UsageError(Error):
    """A call that makes no sense here: of a run that has ended, of a name that cannot be one."""


class ConfigError(Error):
    """A setting of the run that would be changed without `allow_val_change=True`."""


class NoSuchSetting(Error, AttributeError, KeyError):
    """A name that `config` or `summary` does not have: of the first W&B says AttributeError, of the second KeyError."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class CommError(Error):
    """The network failed; it is never raised here, where nothing leaves the machine."""


class WrongType(Error, WrongInputs):
    """A value of another type than W&B takes."""

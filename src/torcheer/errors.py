"""All exceptions of torcheer; each is also the builtin exception a caller would expect."""

from __future__ import annotations

import sys

from torcheer.public_names import PublicClass


class TorcheerError(Exception, metaclass=PublicClass):
    """Base class; the message has the request, what is available and what to try."""


class UnknownName(TorcheerError, KeyError):
    """A key that names nothing in a table, a run or a history."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class UnknownLayer(UnknownName):
    """A key that names no layer, module or position of this history."""


class AmbiguousLayer(TorcheerError, LookupError):
    """A single value was requested of a layer that ran several times."""


class ValueUnavailable(TorcheerError, LookupError):
    """A value that was not saved, was freed, or was changed outside torch's version counter."""


class BadArgument(TorcheerError, ValueError):
    """An invalid argument."""


class UnknownOption(BadArgument, TypeError):
    """An option that a function or class of torcheer does not have."""


class WrongInputs(BadArgument, TypeError):
    """Inputs that the model's forward does not take."""


class UnsupportedSystem(TorcheerError, NotImplementedError):
    """This operating system lacks what a part of torcheer needs."""


class UnsupportedTorch(TorcheerError, ImportError):
    """The installed torch lacks a private name that torcheer needs."""


class NotAModel(TorcheerError, TypeError):
    """Something that is not an nn.Module where one is needed."""


class CannotReplay(TorcheerError, RuntimeError):
    """Replay was requested, but the live model or its values are gone."""


class MissingRule(TorcheerError, NotImplementedError):
    """An operation has no rule for what is asked: for its gradient, or for shapes alone."""


class RuleMistake(TorcheerError, TypeError):
    """A rule returned something that cannot be the gradient of its input."""


class GraphFreed(TorcheerError, RuntimeError):
    """Backward was called through operations that have freed their saved values."""


class NotTraced(TorcheerError, RuntimeError):
    """A gradient was requested of a tensor that no traced operation produced."""


class SavedValueChanged(TorcheerError, RuntimeError):
    """A value that a rule reads again was overwritten between forward and backward."""


class LeafWritten(TorcheerError, RuntimeError):
    """An in-place write to a leaf tensor that requires a gradient."""


class NotAnArchive(TorcheerError, ValueError):
    """A path without an archive, or with one of an unsupported version."""


class ArchiveDamaged(TorcheerError, ValueError):
    """Bytes on disk that differ from what was written."""


class ArchiveBusy(TorcheerError, BlockingIOError):
    """Another process is writing to an archive."""


class ArchiveClosed(TorcheerError, ValueError):
    """A write through a Writer that is closed or belongs to another process."""


class CannotWrite(TorcheerError, OSError):
    """A write failed: a full disk, a read-only folder, too many open files."""


class CannotRead(TorcheerError, OSError):
    """Storage behind a URL refuses to be read: the network, or who may read it."""


class BadConfig(TorcheerError, ValueError):
    """An invalid config; the message has the file, the line and the key."""


class NotTrusted(TorcheerError, ImportError):
    """A config names code that it is not trusted to run."""


INTERRUPTED = "stopped by Ctrl-C"


def reason_of(error: BaseException) -> str:
    """An exception as one line of text."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return f"{type(error).__name__}: {error}".rstrip(": ")[:500]


def uncaught() -> BaseException | None:
    """The uncaught exception that ends this program; None at a prompt and in notebooks, where none ends it."""
    error = getattr(sys, "last_value", None)
    return None if hasattr(sys, "ps1") or "IPython" in sys.modules else error


class TorcheerWarning(UserWarning, RuntimeWarning, metaclass=PublicClass):
    """Something that torcheer warns of: `warnings.simplefilter("ignore", TorcheerWarning)` silences all of it."""


class ConfigWarning(TorcheerWarning):
    """A config that is valid, and says something else than its writer may have meant."""

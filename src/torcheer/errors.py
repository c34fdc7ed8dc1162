"""Every error torcheer raises on purpose; each is also the builtin a caller would expect."""

from __future__ import annotations


class TorcheerError(Exception):
    """Anything torcheer refuses to do, with what was asked, what is there and what to try."""


class UnknownLayer(TorcheerError, KeyError):
    """A key that names no layer, module or position of this history."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class AmbiguousLayer(TorcheerError, LookupError):
    """One value was asked for where a layer ran several times."""


class ValueUnavailable(TorcheerError, LookupError):
    """A value that was not saved, was freed, or changed behind torch's back."""


class BadArgument(TorcheerError, ValueError):
    """An argument that cannot mean anything here."""


class WrongInputs(BadArgument, TypeError):
    """Inputs that the model's forward does not take."""


class NotAModel(TorcheerError, TypeError):
    """Something that is not an nn.Module where one is needed."""


class CannotReplay(TorcheerError, RuntimeError):
    """Replay was asked for where the live model or its values are gone."""


class MissingRule(TorcheerError, NotImplementedError):
    """A gradient would have to go through an operation that has no rule."""


class RuleMistake(TorcheerError, TypeError):
    """A rule returned something that cannot be the gradient of what it was asked about."""


class GraphFreed(TorcheerError, RuntimeError):
    """Backward was asked to go through operations that have let go of their values."""


class NotTraced(TorcheerError, RuntimeError):
    """A gradient was asked of a tensor that nothing traced leads to."""


class SavedValueChanged(TorcheerError, RuntimeError):
    """A value that a rule reads again was overwritten between forward and backward."""


class LeafWritten(TorcheerError, RuntimeError):
    """A tensor that asked for a gradient was to be overwritten in place."""


class NotAnArchive(TorcheerError, ValueError):
    """A path that holds no archive, or one of a version that this torcheer does not know."""


class ArchiveDamaged(TorcheerError, ValueError):
    """Bytes on disk that are not what was written."""


class ArchiveBusy(TorcheerError, BlockingIOError):
    """Another process is writing to an archive."""


class ArchiveClosed(TorcheerError, ValueError):
    """A Writer that has ended, or that belongs to another process, was to write."""


class CannotWrite(TorcheerError, OSError):
    """The system refuses to write: a full disk, a read-only folder, too many open files."""


class BadConfig(TorcheerError, ValueError):
    """A config that cannot be read or understood, with the file, the line and the key."""


class NotTrusted(TorcheerError, ImportError):
    """A config names code that it may not have run."""

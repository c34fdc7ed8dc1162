"""The reading process: reads what its parent asks for, with the descriptors that it is given, until the parent ends."""

from __future__ import annotations

import codecs
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from torcheer.errors import ArchiveDamaged, BadArgument, TorcheerError
from torcheer.foreign.readers.limits import limit_this_process
from torcheer.foreign.readers.read import READERS, load_reader, read
from torcheer.foreign.request import Answer, Request
from torcheer.wire.parent import Parent
from torcheer.wire.shared_memory import anonymous_memory

_POLL_SECS: Final = 1.0  # between two checks that the parent lives
# What readers import when they need it: by then nothing can be opened any more.
_LATE: Final = {
    "lightning": ("yaml",), "events": ("yaml",),
    "media": ("PIL.PngImagePlugin", "PIL.JpegImagePlugin", "PIL.GifImagePlugin", "PIL.BmpImagePlugin",
              "PIL.PpmImagePlugin", "PIL.WebPImagePlugin"),
}  # fmt: skip
_CODECS: Final = ("utf-8", "cp437", "latin-1", "ascii")


def main(arguments: Sequence[str], parent: Parent) -> int:
    """Serve until the parent ends; the arguments are the readers that may be asked for."""
    for reader in READERS:
        if reader in arguments:
            load_reader(reader)
            for name in _LATE.get(reader, ()):
                try:
                    import_module(name)
                except ImportError:  # what needs it says so
                    continue
    for name in _CODECS:
        codecs.lookup(name)
    parent.exit_when_gone()  # whatever is being read then
    _Service(parent).serve(limit_this_process())
    return 0


class _Service:
    """One request after the other."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._wire = parent, parent.wire
        self._inbox: list[tuple[dict[str, Any], int | None]] = []

    def serve(self, limits: list[str]) -> None:
        """Say which limits hold, then answer for ever: the process ends with its parent."""
        self._wire.send({"kind": "ready", "limits": limits})
        while True:
            self._answer(self._next()[0])

    def _next(self) -> tuple[dict[str, Any], int | None]:
        while not self._inbox:
            if self._parent.is_gone:
                sys.exit()
            self._inbox += self._wire.receive_within(_POLL_SECS)
        return self._inbox.pop(0)

    def _answer(self, message: dict[str, Any]) -> None:
        part = message.get("part")
        request = Request(
            message["reader"], message["name"], tuple(message["names"]), None if part is None else tuple(part)
        )
        signal.setitimer(signal.ITIMER_PROF, message["cpu_secs"])  # SIGPROF ends this process
        try:
            answer = read(request, self._open)
            self._send(answer)
        except (TorcheerError, FileNotFoundError) as error:
            kind = "BadArgument" if isinstance(error, BadArgument) else "ArchiveDamaged"
            kind = "FileNotFoundError" if isinstance(error, FileNotFoundError) else kind
            self._wire.send({"kind": "error", "error": kind, "text": str(error)[:2000]})
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        self._wire.drain(60)

    def _open(self, name: str) -> int:
        """The descriptor of a file, which the parent opens, or refuses to."""
        self._wire.send({"kind": "open", "name": name})
        message, descriptor = self._next()
        if descriptor is not None:
            return descriptor
        if message.get("error") == "FileNotFoundError":
            raise FileNotFoundError(message["text"])
        raise BadArgument(message["text"])

    def _send(self, answer: Answer) -> None:
        """Send an answer in memory without a path: JSON, then the numbers beside it."""
        try:
            text = json.dumps(answer.body, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise ArchiveDamaged(f"what is in it cannot be said: {error}") from None
        descriptor = anonymous_memory("torcheer-answer")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.write(answer.blob)
            file.flush()
            facts = {"json_bytes": len(text), "blob_bytes": len(answer.blob), "files": answer.files}
            self._wire.send({"kind": "answer", **facts}, file.fileno())

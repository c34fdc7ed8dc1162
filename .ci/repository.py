"""Where the project is on the web: what the clone that is built, or the sdist, says of itself.

No address stands in the sources: a fork's package would link to somebody else's. A clone's `origin` counts if it is on
one of the public hosts below, whatever user or token stands in it; an unpacked sdist has the addresses of its build.
"""

from __future__ import annotations

import re
import subprocess
from email import message_from_string
from pathlib import Path
from typing import NamedTuple

# host -> what stands between a repository and a file's page, and between it and a file's bytes
_HOSTS = {
    "github.com": ("blob/main", "raw/main"),
    "gitlab.com": ("-/blob/main", "-/raw/main"),
    "codeberg.org": ("src/branch/main", "raw/branch/main"),
    "bitbucket.org": ("src/main", "raw/main"),
}
_URL = re.compile(r"(?:https?|ssh|git)://(?:[^@/]*@)?([\w.-]+)(?::\d+)?/(.+)")
_SCP = re.compile(r"(?:[^@/:]+@)?([\w.-]+):(?!/)(.+)")
_PATH = re.compile(r"[\w.~/-]+")


class Repository(NamedTuple):
    """A repository on a public host."""

    address: str  # https://host/owner/name
    pages: str  # where the page of a file is; its path comes after a slash
    files: str  # where the bytes of a file are

    @property
    def urls(self) -> dict[str, str]:
        """What package indexes list."""
        return {
            "Repository": self.address,
            "Documentation": f"{self.pages}/docs/index.md",
            "Changelog": f"{self.pages}/CHANGELOG.md",
            "Issues": f"{self.address}/{'-/' * ('/-/' in self.pages)}issues",
        }


def find_repository(root: Path) -> Repository | None:
    """Return where a source tree comes from: an sdist by its metadata, a clone by its `origin`; None for neither."""
    if (root / "PKG-INFO").is_file():
        told = message_from_string((root / "PKG-INFO").read_text(encoding="utf-8")).get_all("Project-URL") or []
        return parse_address(dict(line.split(", ", 1) for line in told).get("Repository", ""))
    if not (root / ".git").exists():  # or git would answer for a repository around it
        return None
    try:
        command = ["git", "config", "--get", "remote.origin.url"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_address(done.stdout.strip())


def parse_address(remote: str) -> Repository | None:
    """Return the repository of a remote's address; None where its host is not a public one."""
    match = _URL.fullmatch(remote) or _SCP.fullmatch(remote)
    host = match[1].lower() if match else ""
    path = match[2].strip("/").removesuffix(".git") if match else ""
    if host not in _HOSTS or not _PATH.fullmatch(path) or "/" not in path:
        return None
    address, (pages, files) = f"https://{host}/{path}", _HOSTS[host]
    return Repository(address, f"{address}/{pages}", f"{address}/{files}")

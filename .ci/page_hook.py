"""Put the studio's page into a wheel or an sdist that is built where `make web` has not run.

pip builds from a bare checkout (`pip install git+…`, `pip wheel .`), and the page is not kept in git. It is bundled in
a temporary folder, so that a build changes nothing in its source tree. An sdist carries the page: a wheel that is
made of one needs no Node.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = "src/torcheer/studio/page"
_TRIES = "install Node 20.19 or newer with npm, or build the page with `make web` first"


class PageHook(BuildHookInterface[Any]):
    """Hatchling's hook; its name is pyproject.toml's `custom`."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Ask for pip's Node where the page must be bundled and this machine has none."""
        node = _node()
        return [node.PACKAGE] if self._is_needed() and node.on_path() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not self._is_needed():  # an editable install serves what `make web` builds
            return
        self._folder = tempfile.TemporaryDirectory(prefix="torcheer-page-")
        place = "torcheer/studio/page" if self.target_name == "wheel" else _PAGE
        for file in self._bundle(Path(self._folder.name)).iterdir():
            build_data["force_include"][str(file)] = f"{place}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _is_needed(self) -> bool:
        """Whether the page is not there, or older than a file that it is made of."""
        root = Path(self.root)
        built = root / _PAGE / "studio.js"
        if not built.is_file():
            return True
        sources = [path for path in (root / "web/src").rglob("*") if path.is_file()]
        return any(path.stat().st_mtime > built.stat().st_mtime for path in sources)

    def _bundle(self, folder: Path) -> Path:
        """Bundle the page below `folder`; return the folder of its files."""
        found = _node().on_path() or _node().from_pip()
        if found is None:
            raise RuntimeError(f"the studio's page is not built, and there is no Node to build it with: {_TRIES}")
        self.app.display_waiting("torcheer: bundling the studio's page")
        web = folder / "web"
        shutil.copytree(Path(self.root) / "web", web, ignore=shutil.ignore_patterns("node_modules"))
        environment = os.environ | {"PATH": os.pathsep.join((str(Path(found.node).parent), os.environ.get("PATH", "")))}
        options = ("ci", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error")
        for command in ([*found.npm, *options], [found.node, "build.mjs"]):
            # Not to stdout: a builder may print there what it made.
            done = subprocess.run(
                command, cwd=web, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            if done.returncode:
                words = " ".join(Path(word).name for word in command[:2])
                raise RuntimeError(f"the studio's page could not be bundled: {words} failed; {_TRIES}\n{done.stdout}")
        return folder / _PAGE


def _node() -> ModuleType:
    """Return node.py beside this file, which is no package."""
    name = "torcheer_build_node"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("node.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]

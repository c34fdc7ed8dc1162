"""Files that a W&B script keeps with its run: `save`, `Artifact`, `log_artifact`; they are copied, and stay here."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from torcheer.disk import write_file
from torcheer.errors import BadArgument
from torcheer.integrations.loop_settings import plain_settings
from torcheer.integrations.wandb_parts.wandb_errors import Error
from torcheer.terminal import did_you_mean, first_names

ARTIFACTS: Final = "artifacts"  # in the run's folder
_MANIFEST: Final = "artifact.json"
_NO_NAME: Final = re.compile(r"[^\w.-]")


class Artifact:
    """Files under a name, with a type, a description and metadata; `log_artifact` copies them to the run's folder."""

    def __init__(
        self, name: str, type: str, description: str | None = None, metadata: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        if not name or _NO_NAME.search(name):
            raise BadArgument(f"wandb.Artifact: a name has letters, digits, dashes, underscores, dots, unlike {name!r}")
        self.name, self.type, self.description = name, type, description
        self.metadata = dict(metadata or {})
        self.version = ""  # "v0", "v1", … once it is logged
        self.aliases: list[str] = []
        self.references: dict[str, str] = {}  # addresses by name: they are written down, nothing is loaded
        self._folder: Path | None = None  # once it is logged
        self._staged: tempfile.TemporaryDirectory[str] | None = None

    def add_file(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> Path:
        """Add a copy of a file."""
        if not Path(local_path).is_file():
            raise BadArgument(f"wandb.Artifact.add_file: there is no file {os.fspath(local_path)}")
        return Path(shutil.copy2(local_path, self._place(name or Path(local_path).name)))

    def add_dir(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> None:
        """Add copies of all files of a folder."""
        folder = Path(local_path)
        if not folder.is_dir():
            raise BadArgument(f"wandb.Artifact.add_dir: there is no folder {folder}")
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                self.add_file(file, str(Path(name or ".") / file.relative_to(folder)))

    @contextmanager
    def new_file(self, name: str, mode: str = "x", encoding: str | None = None) -> Iterator[Any]:
        """Open a new file of the artifact to write to."""
        with open(self._place(name), mode, encoding=encoding) as file:
            yield file

    def add(self, obj: Any, name: str, **_: Any) -> Path:
        """Add a `wandb.Table`, as JSON."""
        if not hasattr(obj, "columns") or not hasattr(obj, "data"):
            raise BadArgument(f"wandb.Artifact.add: a {type(obj).__name__} has no file; wandb.log keeps it, and "
                              "add_file takes the file that it came from")  # fmt: skip
        place = self._place(f"{name}.table.json")
        rows = plain_settings({"columns": obj.columns, "data": obj.data})
        place.write_text(json.dumps(rows), encoding="utf-8")
        return place

    def add_reference(self, uri: str, name: str | None = None, **_: Any) -> None:
        """Note an address; what is there is not loaded."""
        self.references[name or str(uri).rstrip("/").rpartition("/")[2]] = str(uri)

    def _place(self, name: str) -> Path:
        if self._folder is not None:
            raise Error(f"wandb.Artifact {self.name!r} is logged already; a new one begins with wandb.Artifact(…)")
        if self._staged is None:
            self._staged = tempfile.TemporaryDirectory(prefix="torcheer-artifact-")
        root = Path(self._staged.name).resolve()
        place = (root / name).resolve()
        if not place.is_relative_to(root):
            raise BadArgument(f"wandb.Artifact: {name!r} lies outside of the artifact")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def log_into(self, run: Path, aliases: Sequence[str] | None) -> None:
        """Copy it to a run's folder, as the next version among the runs beside it."""
        if self._folder is not None:
            return
        count = sum(1 for _ in _manifests(run.parent, self.name))
        self.version, self.aliases = f"v{count}", list(aliases or ("latest",))
        folder = run / ARTIFACTS / f"{self.name}-{self.version}"
        if self._staged is not None:
            shutil.copytree(self._staged.name, folder, dirs_exist_ok=True)
            self._staged.cleanup()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        described = {
            "name": self.name, "version": count, "type": self.type, "description": self.description,
            "aliases": self.aliases, "metadata": plain_settings(self.metadata), "references": self.references,
            "files": [str(file.relative_to(folder)) for file in self.files()],
        }  # fmt: skip
        write_file(folder / _MANIFEST, json.dumps(described, indent=1, ensure_ascii=False) + "\n")

    def files(self) -> list[Path]:
        """The files, sorted."""
        root = self._folder or (Path(self._staged.name) if self._staged is not None else None)
        found = root.rglob("*") if root is not None else ()
        return sorted(file for file in found if file.is_file() and file.name != _MANIFEST)

    def download(self, root: str | os.PathLike[str] | None = None, **_: Any) -> str:
        """Return the folder of a logged artifact; with `root`, a copy there."""
        folder = self._logged("download")
        if root is None:
            return str(folder)
        shutil.copytree(folder, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_MANIFEST))
        return str(root)

    def file(self, root: str | os.PathLike[str] | None = None) -> str:
        """Return the path of the only file."""
        files = self.files()
        if len(files) != 1:
            raise BadArgument(f"wandb.Artifact.file: {self.name} has {len(files)} files; download() is their folder")
        return str(Path(self.download(root)) / files[0].name)

    def wait(self, *_: Any) -> Artifact:
        """Nothing to wait for: it is copied when it is logged."""
        return self

    def _logged(self, name: str) -> Path:
        if self._folder is None:
            raise Error(f"wandb.Artifact.{name}: {self.name} is not logged yet; run.log_artifact(artifact) does it")
        return self._folder

    def __getattr__(self, name: str) -> Any:
        names = [each for each in dir(type(self)) if not each.startswith("_")]
        raise AttributeError(f"an Artifact of torcheer has no {name!r}: its files lie in download(), and there is no "
                             f"server; it has {', '.join(names)}.{did_you_mean(name, names)}")  # fmt: skip


def find_artifact(project: Path, wanted: str) -> Artifact:
    """The artifact of a project's runs by `name`, `name:latest`, `name:v3` or an alias."""
    name, _, alias = wanted.rpartition("/")[2].partition(":")
    found = sorted(_manifests(project, name), key=lambda pair: pair[1]["version"])
    fits = [pair for pair in found if alias in ("", "latest", f"v{pair[1]['version']}", *pair[1]["aliases"])]
    if not fits:
        there = first_names(sorted({folder.name for folder in project.glob(f"*/{ARTIFACTS}/*")})) or "none"
        raise Error(f"wandb.use_artifact: the runs in {project} have no artifact {wanted!r}; there are {there}. "
                    "run.log_artifact(…) keeps one")  # fmt: skip
    folder, described = fits[-1]
    artifact = Artifact(described["name"], described["type"], described["description"], described["metadata"])
    artifact.version, artifact.aliases = f"v{described['version']}", described["aliases"]
    artifact.references, artifact._folder = described["references"], folder
    return artifact


def _manifests(project: Path, name: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in project.glob(f"*/{ARTIFACTS}/{glob.escape(name)}-v*/{_MANIFEST}"):
        try:
            described = json.loads(file.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(described, dict) and described.get("name") == name:
            yield file.parent, described


class SavedFiles:
    """Copies of files that `save` was asked to keep; at the run's end they are copied again, as they may have grown."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._patterns: list[tuple[str, Path]] = []  # with the folder that names are relative to

    def save(self, pattern: str | os.PathLike[str], base: str | os.PathLike[str] | None, policy: str) -> list[str]:
        """Copy what a pattern matches now, and unless `policy` is "now" again at the end; the copies' paths."""
        if policy not in ("live", "now", "end"):
            raise BadArgument(f"wandb.save: policy={policy!r}; there are live, now, end")
        text = os.fspath(pattern)
        text = text.decode() if isinstance(text, bytes) else text
        root = Path(base) if base is not None else Path() if not os.path.isabs(text) else Path(text).parent
        pair = (text if os.path.isabs(text) or base is None else str(root / text), root)
        if policy != "now" and pair not in self._patterns:
            self._patterns.append(pair)
        return self._copy(*pair)

    def _copy(self, pattern: str, root: Path) -> list[str]:
        copies = []
        for name in sorted(glob.glob(pattern, recursive=True)):
            file = Path(name).resolve()
            if not file.is_file():
                continue
            is_below = file.is_relative_to(root.resolve())
            target = self._folder.resolve() / (file.relative_to(root.resolve()) if is_below else file.name)
            if not file.is_relative_to(self._folder.resolve()):  # what was written to run.dir is there already
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
            copies.append(str(target))
        return copies

    def close(self) -> None:
        """Copy everything once more."""
        for pattern, root in self._patterns:
            self._copy(pattern, root)

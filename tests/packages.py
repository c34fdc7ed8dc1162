"""The package as users get it: a wheel and an sdist, built here, and the wheel installed in a folder of its own."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from children import run_python

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "src" / "torcheer" / "studio" / "page"
NEEDS_PAGE = pytest.mark.skipif(not (PAGE / "studio.js").is_file(), reason="the page is not built: `make web`")


def built(kind: str, folder: Path, source: Path = ROOT) -> Path:
    """A "wheel" or an "sdist" of a source tree; nothing is fetched for it."""
    run_python("-m", "hatchling", "build", "-t", kind, "-d", folder, cwd=source)
    return next(folder.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


def unpacked(sdist: Path, folder: Path) -> Path:
    """An sdist as a source tree."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def installed(wheel: Path, folder: Path) -> Path:
    """A wheel in a folder that can be put on the path; what it needs is here already."""
    options = ("--no-deps", "--no-index", "--no-compile", "--target", folder)
    run_python("-m", "pip", "-qq", "--disable-pip-version-check", "install", *options, wheel)
    return folder


@pytest.fixture(scope="module", name="package")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed package, without the checkout."""
    wheel = built("wheel", tmp_path_factory.mktemp("built"))
    return installed(wheel, tmp_path_factory.mktemp("installed"))

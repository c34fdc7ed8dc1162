"""What a wheel and an sdist carry: all that runs without a checkout, Node or a network, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from types import ModuleType

import pytest
from children import run_python
from packages import NEEDS_PAGE, ROOT, built, unpacked

pytestmark = NEEDS_PAGE
CARRIED = (
    "py.typed", "autograd/Whitelist.txt",
    *(f"studio/page/{name}" for name in ("index.html", "studio.js", "studio.css", "icon.svg")),
    "drawing/page/graph.js",
    *(f"drawing/fonts/{name}" for name in ("Regular.ttf", "Regular.woff2", "Bold.ttf", "Bold.woff2", "advances.json")),
    *(f"demo/project/{name}" for name in ("training.yaml", "digits.py", "digits.csv.gz", "ABOUT-THE-DIGITS.txt")),
)  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a wheel of the checkout."""
    return files_of(built("wheel", tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", tmp_path_factory.mktemp("sdist"))


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_carries_the_pages_the_fonts_and_the_demo(wheel: dict[str, bytes]) -> None:
    missing = [name for name in CARRIED if not wheel.get(f"torcheer/{name}") and name != "py.typed"]
    assert missing == [] and "torcheer/py.typed" in wheel
    for name in ("studio/page/studio.js", "drawing/page/graph.js", "demo/project/digits.csv.gz"):
        assert wheel[f"torcheer/{name}"] == (ROOT / "src" / "torcheer" / name).read_bytes()


def test_the_wheel_carries_every_module_and_nothing_else(wheel: dict[str, bytes]) -> None:
    source = ROOT / "src"
    ours = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert {name for name in wheel if name.endswith(".py")} == ours
    strange = [name for name in wheel if not name.startswith(("torcheer/", "torcheer-")) or "__pycache__" in name]
    assert strange == []
    about = next(text for name, text in wheel.items() if name.endswith("entry_points.txt"))
    assert b"torcheer = torcheer.cli:main" in about


def test_the_licences_of_the_font_and_of_the_digits_go_with_it(wheel: dict[str, bytes]) -> None:
    licences = {Path(name).name for name in wheel if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "OFL.txt", "ABOUT-THE-DIGITS.txt"}


def about(wheel: dict[str, bytes]) -> Message:
    text = next(text for name, text in wheel.items() if name.endswith(".dist-info/METADATA"))
    return message_from_string(text.decode())


def test_indexes_are_told_what_it_is_and_no_newer_torch_is_refused(wheel: dict[str, bytes]) -> None:
    told = about(wheel)
    needs = [need for need in told.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert needs == ["numpy", "torch>=2.9"]
    assert "pytorch" in told["Keywords"] and "Typing :: Typed" in (told.get_all("Classifier") or [])


def test_the_readme_of_an_index_links_to_nothing_that_is_only_in_the_repository(wheel: dict[str, bytes]) -> None:
    text = str(about(wheel).get_payload())
    assert "# torcheer" in text and "history = tl.log_forward_pass(model, x)" in text
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert [link for link in re.findall(r"\]\(([^)]*)\)", prose) if not link.startswith(("http", "#"))] == []


def tool(name: str) -> ModuleType:
    """A file of .ci, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_with_a_repository_the_links_of_that_readme_lead_to_it() -> None:
    hook, readme = tool("readme_hook"), (ROOT / "README.md").read_text()
    repository = tool("repository").parse_address("https://github.com/example/torcheer")
    pages, files = f"{repository.address}/blob/main", f"{repository.address}/raw/main"
    text = hook.indexed(readme, repository)
    assert f"]({pages}/docs/getting-started.md)" in text and f"]({files}/docs/pictures/" in text
    assert f"[![A]({files}/a.webp)]({pages}/a.mp4)" == hook.indexed("[![A](a.webp)](a.mp4)", repository)
    assert hook.indexed("[![A](a.webp)](a.mp4)\n\nSee [b](b.md), [c](#c).") == "See b, [c](#c)."
    assert text.count("```") == readme.count("```")


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/example/torcheer.git", "https://github.com/example/torcheer"),
        ("https://someone:token@github.com/example/torcheer", "https://github.com/example/torcheer"),
        ("git@gitlab.com:group/part/torcheer.git", "https://gitlab.com/group/part/torcheer"),
        ("ssh://git@codeberg.org:22/example/torcheer.git", "https://codeberg.org/example/torcheer"),
        ("https://git.inside.example/example/torcheer.git", ""),
        ("file:///srv/torcheer.git", ""),
        ("/srv/github.com/torcheer", ""),
        ("https://github.com/", ""),
        ("", ""),
    ],
)
def test_an_origin_on_a_public_host_is_an_address_without_its_user(remote: str, address: str) -> None:
    repository = tool("repository").parse_address(remote)
    assert (repository.address if repository else "") == address


@pytest.mark.slow
def test_what_is_built_in_a_clone_names_where_it_comes_from_and_so_does_what_is_built_of_it(
    sdist: Path, wheel: dict[str, bytes], tmp_path: Path
) -> None:
    clone = unpacked(sdist, tmp_path / "clone")
    (clone / "PKG-INFO").unlink()
    remote = ("git", "remote", "add", "origin", "https://someone:token@github.com/example/torcheer.git")
    for command in (("git", "init", "-q"), remote):
        subprocess.run(command, cwd=clone, check=True)
    files = files_of(built("wheel", tmp_path / "built", clone))
    links = dict(line.split(", ") for line in about(files).get_all("Project-URL") or [])
    address = "https://github.com/example/torcheer"
    assert links == {
        "Repository": address, "Documentation": f"{address}/blob/main/docs/index.md",
        "Changelog": f"{address}/blob/main/CHANGELOG.md", "Issues": f"{address}/issues",
    }  # fmt: skip
    assert f"]({address}/blob/main/docs/getting-started.md)" in str(about(files).get_payload())
    assert not any(b"token@" in text for text in files.values())
    # An sdist of that clone has the same metadata, and no clone around it.
    shutil.rmtree(clone / ".git")
    name = next(name for name in files if name.endswith(".dist-info/METADATA"))
    (clone / "PKG-INFO").write_bytes(files[name])
    told = json.loads(run_python("-m", "hatchling", "metadata", cwd=clone).stdout)
    assert told["urls"] == links
    (clone / "PKG-INFO").unlink()
    told = json.loads(run_python("-m", "hatchling", "metadata", cwd=clone).stdout)
    assert "urls" not in told and "](docs/" not in told["readme"]["text"]


def test_no_file_names_an_address_of_its_own() -> None:
    """A fork's citation, site and templates would lead to somebody else's."""
    for name, keys in {"CITATION.cff": ("repository-code", "url"), "mkdocs.yml": ("repo_url", "site_url")}.items():
        assert not set(keys) & {line.partition(":")[0] for line in (ROOT / name).read_text().splitlines()}
    for file in (*(ROOT / ".github").rglob("*.yml"), ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"):
        assert "://" not in file.read_text(), file


@pytest.mark.slow
def test_pip_builds_the_page_from_a_bare_checkout_without_node(wheel: dict[str, bytes], tmp_path: Path) -> None:
    """As `pip install git+…` does; Node comes from pip, and needs an index."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git") or "")
    source = f"git+file://{ROOT}"
    options = ("-m", "pip", "-qq", "wheel", "--no-deps", "-w", tmp_path / "built", source)
    run_python(*options, env={"PATH": str(tools)}, secs=1200)
    built_here = files_of(next((tmp_path / "built").glob("*.whl")))
    page = {name: text for name, text in built_here.items() if name.startswith("torcheer/studio/page/")}
    assert {Path(name).name for name in page} == {"index.html", "studio.js", "studio.css", "icon.svg"}
    assert len(page["torcheer/studio/page/studio.js"]) > 500_000


def test_the_sdist_carries_what_makes_tests_and_documents_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert {
        name for name in tracked if (ROOT / name).is_file()
    } <= names  # but for a checkout without git: then nothing
    assert {f"src/torcheer/{name}" for name in CARRIED} <= names
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name or name.startswith(".venv")]


def test_a_wheel_made_from_the_sdist_is_the_wheel(sdist: Path, wheel: dict[str, bytes], tmp_path: Path) -> None:
    again = files_of(built("wheel", tmp_path / "built", unpacked(sdist, tmp_path / "source")))
    assert set(again) == set(wheel)
    assert [name for name in wheel if again[name] != wheel[name]] == []

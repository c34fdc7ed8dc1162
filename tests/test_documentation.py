"""The documents: every parameter of every public name, every command, every key; pages and notebooks that are true."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import document_blocks
import pytest
from children import run_python
from document_blocks import FIRST_PAGES

from torcheer import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))
from command_pages import command_reference  # noqa: E402
from field_comments import field_comments  # noqa: E402

PUBLIC = (
    "torcheer", "torcheer.training", "torcheer.training.control", "torcheer.inspector", "torcheer.studio",
    "torcheer.autograd", "torcheer.autograd.nn", "torcheer.archive", "torcheer.extraction", "torcheer.drawing",
    "torcheer.modelfiles",
)  # fmt: skip
# Objects that torcheer hands out; nobody makes them.
HANDED_OUT = {
    "Drawing", "Entry", "Explanation", "ExtractedLayer", "FileTensor", "Layer", "ModelFile", "ModelHistory",
    "Projection", "Tape", "Viewer", "Watch",
}  # fmt: skip


def public_names() -> Iterator[Any]:
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if callable(value) and not inspect.ismodule(value) and public not in HANDED_OUT:
                yield pytest.param(value, id=f"{name}.{public}")


@pytest.mark.parametrize("value", list(public_names()))
def test_every_parameter_is_documented(value: Any) -> None:
    """In the docstring, or beside the field of a dataclass."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        pytest.skip("it has no signature")
    is_class = inspect.isclass(value)
    text = inspect.getdoc(value) or ""
    assert text, "no docstring"
    if is_class:
        text += inspect.getdoc(value.__init__) or ""
        beside = field_comments(Path(inspect.getsourcefile(value) or "").read_text(), value.__name__)
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_said = re.search(rf"`{parameter.name}[`=(]|^\s*{parameter.name}: ", text, re.MULTILINE)
        assert is_said or (is_class and beside.get(parameter.name)), f"{parameter.name} is not explained"


def test_every_public_name_is_on_a_page_of_the_api_reference() -> None:
    pages = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    named = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            if public.startswith("__") or inspect.ismodule(getattr(module, public)):
                continue
            homes = {f"{name}.{public}", f"{getattr(getattr(module, public), '__module__', name)}.{public}"}
            assert name in named or homes & named or f"`{public}`" in pages, f"{name}.{public} is on no page"


def test_the_command_reference_is_that_of_the_argument_parsers(request: pytest.FixtureRequest) -> None:
    page = DOCS / "cli-reference.md"
    if request.config.getoption("--overwrite"):
        page.write_text(command_reference())
    text = page.read_text()
    assert all(f"## torcheer {command}\n" in text for command in cli.COMMANDS)
    assert text == command_reference(), "write it anew: pytest --overwrite"


NOTEBOOKS = ("autograd", "capture", "inspector", "studio", "training")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_was_executed_from_top_to_bottom_without_an_error(name: str) -> None:
    cells = json.loads((DOCS / f"notebooks/{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and not [output for output in outputs if output["output_type"] == "error"]


def test_the_notebooks_are_small_and_name_no_place_of_a_machine() -> None:
    files = list((DOCS / "notebooks").glob("*.ipynb"))
    assert {file.stem for file in files} == set(NOTEBOOKS)
    assert sum(file.stat().st_size for file in files) < 1_000_000


def test_the_navigation_lists_pages_that_there_are_and_all_in_folders() -> None:
    """Pages at the top that it does not list are appended by docs/_site/pages.py."""
    import yaml

    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = set(_files(config["nav"]))
    made = {f"notebooks/{name}.md" for name in NOTEBOOKS} | {"changelog.md", "contributing.md", "decisions/index.md"}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed <= pages | made
    assert {page for page in pages | made if "/" in page and not page.startswith("decisions/")} <= listed


def _files(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for item in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _files(item)


PAGES = [ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if page.name != "log.md")]
COMMAND = re.compile(r"^(?:\$ )?torcheer ([a-z-]+)([^#\n]*)", re.MULTILINE)


def test_commands_in_the_documents_exist_with_their_options() -> None:
    named: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text()
        lines = re.findall(r"```\n(.*?)```", text, re.DOTALL)
        lines += re.findall(r"`(torcheer [a-z-]+(?: [^`]*)?)`", text)
        for block in lines:
            for command, rest in COMMAND.findall(block):
                named.setdefault(command, set()).update(re.findall(r"(?<=\s)--[a-z-]+", rest))
    assert len(named) > 10 and named.keys() <= cli.COMMANDS.keys()
    for command, options in named.items():
        known = set(re.findall(r"--[a-z-]+", _section(command)))
        assert options <= known, command


def _section(command: str) -> str:
    """What the command reference says of a command and of those below it."""
    text = (DOCS / "cli-reference.md").read_text()
    return re.split(r"^## ", text.partition(f"## torcheer {command}\n")[2], flags=re.MULTILINE)[0] + "--help"


def test_the_config_of_getting_started_trains_at_the_first_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS / "getting-started.md").read_text().partition("## Train from a config")[2]
    for name, language in (("points.py", "python"), ("training.yaml", "yaml")):
        block = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
        assert block is not None
        (tmp_path / name).write_text(block[1])
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "training.yaml", "--import"]) == 0
    assert cli.main(["train", "training.yaml", "--plain", "--no-control", "--device", "cpu"]) == 0
    assert "Results are under run" in capsys.readouterr().out
    assert cli.main(["evaluate", "run"]) == 0


def test_the_python_in_the_first_documents_runs_twice_with_the_base_package_alone(tmp_path: Path) -> None:
    """Where a line needs more, the page says so beside it, and the error says how to install it."""
    site = tmp_path / "site" / "sitecustomize.py"
    site.parent.mkdir()
    site.write_text(document_blocks.BASE_SITE.format(tests=str(ROOT / "tests")))
    python_path = os.pathsep.join(filter(None, [str(site.parent), os.environ.get("PYTHONPATH")]))
    run_python(document_blocks.__file__, *FIRST_PAGES, cwd=tmp_path, env={"PYTHONPATH": python_path})


# What STYLE's table of words replaces; `go` and `goes` on are "resume" and "continue".
PRIVATE = re.compile(
    r"\b(?:(?:is|are|be) told|is said|let go|whoever|nobody|somebody|anew|a look|goes? on|gone on|lies in)\b"
)
WRITTEN_LATER = {"log", "architecture", "benchmarks", "layout", "zoo", "rules", "config-reference", "first-configs"}
GUIDES = [page for page in DOCS.glob("*.md") if page.stem not in WRITTEN_LATER | {"contexts", "archive-format"}]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "SECURITY.md", *GUIDES], ids=lambda page: page.stem)
def test_a_guide_uses_the_words_of_the_field(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if PRIVATE.search(line)] == []

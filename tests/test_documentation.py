"""The documents: every parameter of every public name, every command, every key; pages and notebooks that are true."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pydoc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import document_blocks
import pytest
import torch
from children import run_python
from document_blocks import FIRST_PAGES
from seams import PARTS, SINGLE, Comparison, Difference, ModuleRow, ModuleSummary, Watched, op_table

import torcheer as tl
from torcheer import cli
from torcheer.inspector.rules import RULES

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_site"))
from command_pages import command_reference  # noqa: E402

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
    """In the docstring, which `help` prints: a comment beside a field is seen by nobody who asks there."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        pytest.skip("it has no signature")
    text = inspect.getdoc(value) or ""
    assert text, "no docstring"
    if inspect.isclass(value):
        text += inspect.getdoc(value.__init__) or ""
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        is_said = re.search(rf"`{parameter.name}[`=(]|^\s*{parameter.name}: ", text, re.MULTILINE)
        assert is_said, f"{parameter.name} is not explained"


def printed_help(value: Any) -> str:
    """What `help` prints of something, or of a name."""
    return pydoc.plain(pydoc.render_doc(value))


PARTS_OF_TRAINING = (
    "Clip", "DebugPipeline", "EarlyStopping", "EpochsCompleted", "Graph", "Input", "Loader", "Measure", "Node",
    "Options", "Pipeline", "Processor", "Schedule", "Session", "Stage", "Term",
)  # fmt: skip
PLAIN_CLASSES = (
    "Edit", "ModelHistory", "Save", "Style", "archive.Archive", "archive.Writer", "autograd.Explanation",
    "drawing.Drawing", "errors.UnknownLayer", "extraction.ExtractedLayer", "extraction.Extraction", "inspector.Alert",
    "inspector.Every", "inspector.Transport", "inspector.Watch", "integrations.OutsideRun", "studio.Network",
    "studio.Table", *(f"training.{name}" for name in PARTS_OF_TRAINING),
)  # fmt: skip


@pytest.mark.parametrize("name", PLAIN_CLASSES)
def test_the_help_of_a_class_is_what_was_written_about_it(name: str) -> None:
    noise = re.compile(r"__(dataclass_fields|match_args|weakref|delattr|setattr|annotations)__|inherited from builtins")
    assert noise.findall(printed_help(f"torcheer.{name}")) == []


def test_help_is_as_long_as_what_there_is_to_say() -> None:
    """A class of seven fields had 78 lines, a room of 30 names 6,060, one of 29 exceptions 2,115."""
    lengths = {"Save": 40, "autograd": 800, "errors": 600, "training": 700}
    lines = {name: len(printed_help(f"torcheer.{name}").splitlines()) for name in lengths}
    assert {name: count for name, count in lines.items() if count > lengths[name]} == {}


def test_help_names_what_is_in_a_room() -> None:
    assert "class Session" in printed_help(tl.training)
    assert "TorcheerCallback" in printed_help(tl.integrations) and "TorcheerTracker" in printed_help(tl.integrations)
    if importlib.util.find_spec("transformers"):
        assert "class TorcheerCallback" in printed_help(tl.integrations.transformers)
    assert {"integrations", "training"} <= set(dir(tl)) and "Session" in dir(tl.training)


def test_help_names_every_rule_every_role_and_every_column(tmp_path: Path) -> None:
    watch, capture = (
        set(re.findall(r"`([\w.\[\]]+)`", printed_help(verb))) for verb in (tl.watch, tl.log_forward_pass)
    )
    assert set(RULES) - watch == set() and '"disk_full"' in printed_help(tl.watch)
    roles = {f"{role}[i]" for role in PARTS} | set(SINGLE)
    roles |= {f"{role}[i].{part}" for role, parts in PARTS.items() if role != "cross" for part in parts if part}
    assert roles - capture == set()
    for method, columns in (
        (tl.ModelHistory.to_pandas, op_table.COLUMNS),
        (Comparison.to_pandas, Difference.__slots__),
        (ModuleSummary.to_pandas, ModuleRow.__slots__),
        (Watched.to_pandas, watched_columns(tmp_path)),
    ):
        assert set(columns) - set(re.findall(r"`(\w+)`", inspect.getdoc(method) or "")) == set()


def watched_columns(folder: Path) -> list[str]:
    model = torch.nn.Linear(1, 1)
    with tl.inspector.watch(model, to=folder, rules="none", system_secs=0):
        model(torch.ones(1, 1))
    return list(tl.inspector.open_watch(folder).table())


def test_recording_says_that_it_records_no_backward_pass_unless_it_is_asked_to() -> None:
    model = torch.nn.Linear(2, 2)
    with tl.recording(model) as history:
        torch.relu(model(torch.ones(1, 2))).sum().backward()
    assert {op.name for op in history} <= {"ones", "linear", "relu", "sum", "ones_like"}
    text = " ".join((inspect.getdoc(tl.recording) or "").split())
    assert 'backward pass run below these functions: they are recorded with `level="aten"` only' in text


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

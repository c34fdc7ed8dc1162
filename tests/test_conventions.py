"""The files that other tools read of a project: workflows, templates, citation, hooks, versions."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import torcheer

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[1]
ACTIONS = {f"actions/{name}@v6" for name in ("checkout", "setup-python", "setup-node")}  # on Node 24, as runners have
PARTS = re.findall(r"^def (\w+)\(folder: Path\)", (ROOT / "benchmarks/version_smoke.py").read_text(), re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == torcheer.__version__ == read("CITATION.cff")["version"]


def test_the_citation_has_what_its_format_asks_for() -> None:
    assert {"cff-version", "message", "title", "authors"} <= read("CITATION.cff").keys()


@pytest.mark.parametrize("file", sorted((ROOT / ".github/workflows").iterdir()), ids=lambda file: file.name)
def test_a_workflow_runs_what_there_is(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"} and True in workflow  # YAML reads `on` as true
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        rows = matrix.get("include", [{"target": target} for target in matrix.get("target", [""])])
        assert job["timeout-minutes"] and job["runs-on"]
        for step in job["steps"]:
            assert step.get("uses", "") in ACTIONS or "run" in step
            for row in rows:  # as the runner fills it in
                run = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found, row=row: row[found[1]], step.get("run", ""))
                assert "${{" not in run and set(re.findall(r"^make (\S+)", run)) <= TARGETS
                assert all((ROOT / script).is_file() for script in re.findall(r"(?:bash|python) ([\w./]+)", run))
                if "version_smoke" in run:
                    assert set(run.split()[2:]) <= set(PARTS)


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda file: file.name
)
def test_a_template_of_issues_is_a_form(file: Path) -> None:
    form = yaml.safe_load(file.read_text())
    assert form["name"] and form["description"]
    assert all(part["type"] == "textarea" and part["id"] and part["attributes"]["label"] for part in form["body"])


def test_hooks_before_a_commit_are_steps_of_the_check() -> None:
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    recipe = (ROOT / "Makefile").read_text()
    for hook in hooks:
        tool = re.search(r"-m (\w+)", hook["entry"])
        assert hook["language"] == "system" and tool is not None and f"-m {tool[1]}" in recipe


def test_editors_are_told_what_the_formatters_do() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    assert settings["*"]["max_line_length"] == "120" and settings["Makefile"]["indent_style"] == "tab"


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_what_a_page_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) <= TARGETS
    assert all((ROOT / link).exists() for link in re.findall(r"\]\((?!https?:)([^)#]+)", text))

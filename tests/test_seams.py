"""Tests reach the inside of the house through one page, tests/seams.py, which only gets shorter."""

import functools
import re
from pathlib import Path

import seams

ROOT = Path(__file__).parents[1]
TESTS = (ROOT / "tests", ROOT / "originals" / "tests")
# Programs of users and of the originals, which import what they import; the last name the types of what verbs return.
PROGRAMS = {"etorch_originals", "inspector_scripts", "writer_scripts", "kill_hook", "golden", "data"}
PROGRAMS |= {"typed_user.py", "typed_user_loops.py", "typed_user_parts.py"}

# Modules whose names are public: those of docs/api, README and the guides.
PUBLIC = {
    "torcheer", "torcheer.archive", "torcheer.autograd", "torcheer.cli", "torcheer.config", "torcheer.drawing",
    "torcheer.errors", "torcheer.extraction", "torcheer.history", "torcheer.inspector", "torcheer.integrations",
    "torcheer.modelfiles", "torcheer.records", "torcheer.samples", "torcheer.selection",
    "torcheer.studio", "torcheer.training",
}  # fmt: skip
PUBLIC_BELOW = {
    "torcheer.autograd": {"base", "init", "losses", "nn", "optim", "tracer"},
    "torcheer.inspector": {"rules"},
    "torcheer.integrations": {"accelerate", "captum", "lightning", "tensorboard", "transformers", "wandb"},
    "torcheer.training": {
        "adapters", "collators", "control", "datasets", "hooks", "metrics", "optimizers", "output_devices",
        "postprocessors", "preprocessors", "session_parts", "stop_conditions",
    },
}  # fmt: skip
PUBLIC |= {f"{room}.{module}" for room, modules in PUBLIC_BELOW.items() for module in modules}

# Lower them with the page: a room that was rebuilt needs fewer.
MOST_INSIDE = 630
MOST_IN_PROGRAMS = 58


@functools.cache
def _inner_modules() -> frozenset[str]:
    source = ROOT / "src"
    paths = (path.relative_to(source).with_suffix("") for path in (source / "torcheer").rglob("*.py"))
    return frozenset(module for path in paths if (module := ".".join(path.parts)) not in PUBLIC)


# Read as text, not as Python: programs that a test writes for a child process count too; 100,000 lines take a blink.
FROM = re.compile(r"^[ \t]*from ([\w.]+) import (\([^)]*\)|[^\n#;]*)", re.MULTILINE)
IMPORT = re.compile(r"^[ \t]*import (torcheer\.[\w.]+)", re.MULTILINE)
NAME = re.compile(r"(\w+)(?: as \w+)?")


@functools.cache
def _imports() -> dict[str, list[tuple[str, list[str]]]]:
    """Of each test file: modules, and what is imported from each."""
    found = {}
    for path in sorted(path for folder in TESTS for path in folder.rglob("*.py")):
        if not PROGRAMS & set(path.relative_to(ROOT).parts):
            text = path.read_text(encoding="utf-8")
            found[str(path.relative_to(ROOT))] = [(module, NAME.findall(names)) for module, names in FROM.findall(text)]
            found[str(path.relative_to(ROOT))] += [(module, []) for module in IMPORT.findall(text)]
    return found


def _from_inside(module: str, names: list[str]) -> list[str]:
    """The inner modules that an import names."""
    if module.split(".")[0] != "torcheer":
        return []
    if module not in PUBLIC:
        return [module]
    return [inner for name in names if (inner := f"{module}.{name}") in _inner_modules()]


def test_tests_import_the_inside_of_the_house_through_seams() -> None:
    """But for programs of child processes, which the page does not reach: no more than there were."""
    found = [
        f"{file}: {inner}" for file, imports in _imports().items() for line in imports for inner in _from_inside(*line)
    ]
    advice = "say it by a public name (docs/api), or by a frozen one of tests/seams.py:"
    assert len(found) <= MOST_IN_PROGRAMS, "\n".join([advice, *found])


def test_every_name_of_the_page_leads_somewhere_stands_once_and_is_used() -> None:
    homes = seams.FROZEN | seams.INSIDE
    names = [name.partition("=")[0] for names in homes.values() for name in names.split()]
    assert sorted(names) == sorted(set(names))
    for name in names:
        getattr(seams, name)
    used = {name for imports in _imports().values() for module, names in imports if module == "seams" for name in names}
    assert set(names) - used == set()


def test_the_page_lists_no_more_of_the_inside_than_it_did() -> None:
    inside = sum(len(names.split()) for names in seams.INSIDE.values())
    assert inside <= MOST_INSIDE, "a new test says what it means by public names"
    assert inside > MOST_INSIDE - 40, f"well done: lower MOST_INSIDE to {inside}"

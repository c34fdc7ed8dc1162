"""`benchmarks/mutants.py`: which faults in a source its tests find, reach and overlook."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from children import run_python

pytestmark = pytest.mark.house

TOOL = Path(__file__).parents[1] / "benchmarks" / "mutants.py"
SUMS = '''"""Functions with faults that are found, overlooked, and never run."""


def double(x, times=2):
    """Not 3 * x."""
    return times * x


def larger(a, b):
    if a > b:
        raise ValueError(f"{a + b}")
    return b


def unreached(x: "int | None" = None):
    while x:
        x -= 1


def endless(x):
    while x > 0:
        x -= 1
    return x
'''
TESTS = """
import subprocess, sys
from toy.sums import double, endless, larger

def test_double():
    assert double(3) == 6

def test_larger_in_another_process():
    assert subprocess.run([sys.executable, "-c", "import toy.sums; print(toy.sums.larger(1, 1))"], check=False)

def test_endless():
    assert endless(2) == 0
"""

UNREACHED = {"x → not x", "raise ValueError(f'{a + b}') → pass"}


@pytest.fixture
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for file, text in {"src/toy/__init__.py": "", "src/toy/sums.py": SUMS, "tests/test_sums.py": TESTS}.items():
        (tmp_path / "toy" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / file).write_text(text)
    return tmp_path / "toy"


def run_tool(results: Path, toy: Path, *options: str) -> tuple[str, dict[str, str]]:
    """Run it to its end: what it printed, and the outcome of each mutation."""
    arguments = [str(results), "--tree", str(toy), "--package", "src/toy", "--parallel", "", "--start-secs", "5"]
    text = run_python(str(TOOL), *arguments, *options).stdout
    drawn = json.loads((results / "mutants.json").read_text())["mutants"]
    facts = [json.loads(line) for line in (results / "judged.jsonl").read_text().splitlines()]
    changes = ["{3} → {4}".format(*mutant["description"]) for mutant in drawn]
    return text, {changes[fact["mutant"]]: fact["outcome"] for fact in facts}


def test_mutations_keep_lines_and_leave_annotations_docstrings_and_sentences_alone(mutants: ModuleType) -> None:
    source = SUMS.encode()
    mutations = mutants.find_mutations(source)
    changes = {(mutation.function, mutation.kind, mutation.before, mutation.after) for mutation in mutations}
    assert changes == {
        ("double", "default", "2", "3"),
        ("double", "return", "return times * x", "return None"),
        ("double", "arithmetic", "times * x", "times / x"),
        ("larger", "condition", "a > b", "not a > b"),
        ("larger", "comparison", "a > b", "a >= b"),
        ("larger", "statement", "raise ValueError(f'{a + b}')", "pass"),
        ("larger", "return", "return b", "return None"),
        ("unreached", "condition", "x", "not x"),
        ("unreached", "statement", "x -= 1", "pass"),
        ("unreached", "constant", "1", "2"),
        ("endless", "condition", "x > 0", "not x > 0"),
        ("endless", "comparison", "x > 0", "x >= 0"),
        ("endless", "constant", "0", "1"),
        ("endless", "statement", "x -= 1", "pass"),
        ("endless", "constant", "1", "2"),
        ("endless", "return", "return x", "return None"),
    }
    for mutation in mutations:
        mutated = mutants.mutate(source, mutation)
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
        assert mutated.count(b"\n") == source.count(b"\n")


def test_a_mutation_is_found_again_after_other_lines_moved(mutants: ModuleType) -> None:
    source = SUMS.encode()
    second = [mutation for mutation in mutants.find_mutations(source) if mutation.before == "x -= 1"][1]
    mutant = mutants.Mutant("sums.py", second.line, second.description, 0)
    moved = mutant.found_in(b"import os\n\n" + source)
    assert (moved.line, moved.start) == (second.line + 2, second.start + 11)
    assert mutant.found_in(source.replace(b"def endless", b"def other")) is None


@pytest.mark.slow
def test_all_of_the_source_can_be_mutated_and_probed(mutants: ModuleType) -> None:
    for path in (TOOL.parents[1] / "src").rglob("*.py"):
        source = path.read_bytes()
        by_line = {mutation.line: mutation for mutation in mutants.find_mutations(source)}
        probed = mutants.put_probes(source, dict(enumerate(by_line.values())))
        assert probed.count(mutants.PROBE.encode() + b"').reached(") == len(by_line)


@pytest.mark.slow
def test_faults_are_found_overlooked_or_not_reached(toy: Path, tmp_path: Path) -> None:
    before = (toy / "src/toy/sums.py").read_text()
    text, outcomes = run_tool(tmp_path / "before", toy, "--seed", "3")
    assert "| sums.py |" in text and (toy / "src/toy/sums.py").read_text() == before
    assert outcomes["2 → 3"] == "found"
    assert {outcomes[change] for change in outcomes if change.startswith("a > b")} == {"survived"}  # in a child process
    assert {outcomes[change] for change in outcomes if change in UNREACHED} == {"not reached"}

    (toy / "tests/test_sums.py").write_text(TESTS.replace("assert double(3) == 6", "assert double(3) or True"))
    text, outcomes = run_tool(tmp_path / "after", toy, "--compare", str(tmp_path / "before"))
    assert outcomes["2 → 3"] == "survived"
    assert (
        "lost: survived: src/toy/sums.py:4 double: `2` → `3`, found before by tests/test_sums.py::test_double" in text
    )


@pytest.mark.slow
def test_a_failure_without_any_fault_finds_nothing(toy: Path, tmp_path: Path) -> None:
    with (toy / "tests/test_sums.py").open("a") as file:
        file.write("\ndef test_broken():\n    assert double(1) == 3\n")
    _, outcomes = run_tool(tmp_path / "results", toy)
    facts = (tmp_path / "results" / "judged.jsonl").read_text()
    assert outcomes["2 → 3"] == "found" and "test_broken" not in facts

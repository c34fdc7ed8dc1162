"""How many small faults the tests find: random mutants of the source, each against the tests that reach it.

    python benchmarks/mutants.py RESULTS [--tree TREE] [--count 200] [--seed 40] [--compare BEFORE]

TREE is a checkout with its environment (`make setup`), of its own: files of its src are changed, one at a time, and put
back. The steps, each of which goes on where it was interrupted, with what it knows in the folder RESULTS:

1. `mutants.json`: a line of src is drawn, each as likely as any other that can be mutated, then one mutation of it. A
   mutant is described by its file, function, line and kind, so that it is found again where other lines moved.
2. `reached.jsonl`, `tests.jsonl`: the fast tests run once, with a call at the place of every mutant that notes which
   test came by. Child processes note it too, as they inherit pytest's `PYTEST_CURRENT_TEST`. This costs what the suite
   costs; measuring coverage of every line would cost several times as much.
3. Every mutant is written to src and judged by tests that reach it: those that reach few mutants first, from all files
   in turn, until one fails, as many as take MOST_SECS of CPU time.
4. Tests that found a mutant run once more on src as it is: those that fail there are put aside, and their mutants
   judged again.

With `--compare BEFORE`, another RESULTS, the mutants are those of BEFORE: the same faults against other tests.
"""

from __future__ import annotations

import argparse
import ast
import copy
import ctypes
import importlib
import itertools
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

MOST_TESTS, MOST_SECS = 150, 120.0  # against one mutant; CPU seconds
FIRST_TESTS = 20  # which find most; only a mutant that they miss is worth collecting the files of the others
STUCK_SECS = 120.0  # a run in which nothing is computed for so long waits for what a mutant took away
LEFT_OUT = "browser", "slow", "house", "faults", "dist", "integrations", "originals", "seeds", "timing"
MARKS = " and ".join(f"not {mark}" for mark in LEFT_OUT)
PYTEST_OPTIONS = ["-p", "no:cacheprovider", "--tb=line", "-m", MARKS]
PRELOADED = ["torch", "numpy", "pytest", "hypothesis", "pandas"]
FILES_A_BATCH = 60

# It lies beside the package, so that whatever imports the package finds it, in child processes too.
PROBE = "mutant_probe"
PROBE_SOURCE = '''
"""Notes which tests come by which mutants, and as a pytest plugin what every test costs and whether it failed."""

import json, os

REACHED, TESTS = {reached!r}, os.environ.get("MUTANT_TESTS")
_open, _write, _close, _environ = os.open, os.write, os.close, os.environ  # before tests replace them
_seen, _cost, _failed = set(), {{}}, set()


def _append(path, fact):
    descriptor = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    _write(descriptor, (json.dumps(fact) + "\\n").encode())
    _close(descriptor)


def reached(mutant):
    test = _environ.get("PYTEST_CURRENT_TEST", "")
    if (mutant, test) not in _seen:
        _seen.add((mutant, test))
        _append(REACHED, [mutant, test.rpartition(" (")[0]])


def _secs():
    return sum(os.times()[:4])


def pytest_configure(config):
    global TESTS
    if getattr(config.option, "workers", 0):
        TESTS = None  # the workers write


def pytest_runtest_logstart(nodeid):
    _cost[nodeid] = _secs()


def pytest_runtest_logreport(report):
    if report.failed:
        _failed.add(report.nodeid)
    if report.when == "teardown" and report.nodeid in _cost and TESTS:
        secs = _secs() - _cost.pop(report.nodeid)
        _append(TESTS, {{"test": report.nodeid, "secs": round(secs, 3), "failed": report.nodeid in _failed}})
'''


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault that could be put into a file: `before` at bytes `start` to `end` becomes `after`."""

    function: str
    line: int
    text: str  # of the line, without spaces around
    kind: str
    before: str
    after: str
    start: int
    end: int
    probe: tuple[str, int]  # how and where a call is put that notes who comes by: "around", "before", "above" a place

    @property
    def description(self) -> tuple[str, ...]:
        return self.function, self.text, self.kind, self.before, self.after


# -- what can be mutated

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


def changed_constant(value: Any) -> Any:
    """Another value of the same type; None where that would say little (sentences, None, bytes)."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if (
        isinstance(value, str) and value and " " not in value
    ):  # a name or a key: nobody promises each word of a sentence
        return value + "_"
    return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def expression_mutants(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What the node itself may become, its parts left alone."""
    other: Any = copy.copy(node)
    if isinstance(node, ast.Compare):
        other.ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield "comparison", other
    elif (
        isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not (_is_text(node.left) or _is_text(node.right))
    ):
        other.op = OPERATORS[type(node.op)]()
        yield "arithmetic", other
    elif isinstance(node, ast.BoolOp):
        other.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield "and/or", other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "condition", node.operand
    elif isinstance(node, ast.Constant) and (value := changed_constant(node.value)) is not None:
        yield "constant", ast.Constant(value)


def _can_be_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):  # a name that is never bound would be a fault that nobody overlooks
        return isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call | ast.Await)
    return isinstance(node, ast.Continue | ast.Break | ast.Raise | ast.AugAssign)


class _Finder(ast.NodeVisitor):
    """Goes through a module and collects what can be mutated: in bodies of functions, and their defaults."""

    def __init__(self, source: bytes) -> None:
        self.mutations: list[Mutation] = []
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._names: list[str] = []
        self._depth = 0  # of functions

    def _place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _add(self, kind: str, node: Any, after: str, before_it: ast.stmt | None = None) -> None:
        text = self._lines[node.lineno - 1].decode().strip()
        start, end = self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)
        before = ast.unparse(node)
        probe = ("around", start)
        if before_it is not None:
            first = min([before_it, *getattr(before_it, "decorator_list", [])], key=lambda part: part.lineno)
            column = first.col_offset - (first is not before_it)  # of the @
            probe = ("above" if hasattr(before_it, "body") else "before", self._place(first.lineno, column))
        if after != before:
            where = ".".join(self._names)
            self.mutations.append(Mutation(where, node.lineno, text, kind, before, after, start, end, probe))

    def _add_condition(self, test: ast.expr) -> None:
        if self._depth and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._add("condition", test, ast.unparse(ast.UnaryOp(ast.Not(), test)))

    def visit(self, node: ast.AST) -> None:
        if self._depth:
            if isinstance(node, ast.expr):
                for kind, after in expression_mutants(node):
                    self._add(kind, node, ast.unparse(after))
            elif isinstance(node, ast.stmt) and _can_be_left_out(node):
                self._add("statement", node, "pass", node)
            elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
                self._add("return", node, "return None", node)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            self._add_condition(node.test)
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._names.append(node.name)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if body and isinstance(default, ast.Constant) and (value := changed_constant(default.value)) is not None:
                self._add("default", default, repr(value), body[0])
        self._depth += 1
        for statement in body:
            self.visit(statement)
        self._depth -= 1
        self._names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        depth, self._depth = self._depth, 0
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()
        self._depth = depth

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in (node.target, node.value):  # not the annotation
            if part is not None:
                self.visit(part)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._add_condition(test)
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        for part in (node.guard, *node.body):  # not the pattern, where no call can stand
            if part is not None:
                self.visit(part)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave it: before Python 3.12 its parts have no places."""


def find_mutations(source: bytes) -> list[Mutation]:
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return finder.mutations


def mutate(source: bytes, mutation: Mutation) -> bytes:
    """The file with the fault in it; all other lines keep their numbers."""
    lines = b"\n" * source.count(b"\n", mutation.start, mutation.end)
    after = mutation.after.encode() + lines
    if mutation.kind not in ("statement", "return"):
        after = b"(" + after + b")"
    mutated = source[: mutation.start] + after + source[mutation.end :]
    compile(mutated, "mutated", "exec", dont_inherit=True)
    return mutated


def put_probes(source: bytes, mutations: dict[int, Mutation]) -> bytes:
    """The file with a call at each mutant's place, which changes nothing else."""
    insertions: list[tuple[tuple[int, int, int], bytes]] = []  # place; of several at one place: which comes first
    for index, mutation in mutations.items():
        call = f"__import__({PROBE!r}).reached({index})".encode()
        how, place = mutation.probe
        if how == "around":
            insertions += [((place, 2, 0), b"(" + call + b" or ("), ((mutation.end, 0, -place), b"))")]
        else:
            indent = source[source.rfind(b"\n", 0, place) + 1 : place]
            insertions.append(((place, 1, 0), call + (b"\n" + indent if how == "above" else b"; ")))
    for (place, _, _), text in sorted(insertions, reverse=True):  # backwards, so that places stay true
        source = source[:place] + text + source[place:]
    compile(source, "probed", "exec", dont_inherit=True)
    return source


# -- which faults


@dataclass(frozen=True, slots=True)
class Mutant:
    """A drawn mutation, described so that it is found again in a source whose other lines changed."""

    file: str
    line: int  # where it was
    description: tuple[str, ...]
    nth: int  # of those in the file with this description

    def found_in(self, source: bytes) -> Mutation | None:
        same = [mutation for mutation in find_mutations(source) if mutation.description == self.description]
        return same[self.nth] if self.nth < len(same) else None


def draw_mutants(package: Path, count: int, seed: int) -> list[Mutant]:
    """Choose lines, each as likely as any other that can be mutated, and a mutation of each."""
    by_line: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package.parents[1]).as_posix()
        so_far: Counter[tuple[str, ...]] = Counter()
        for mutation in find_mutations(path.read_bytes()):
            mutant = Mutant(file, mutation.line, mutation.description, so_far[mutation.description])
            so_far[mutation.description] += 1
            by_line[file, mutation.line].append(mutant)
    generator = random.Random(seed)
    lines = generator.sample(sorted(by_line), min(count, len(by_line)))
    return [generator.choice(by_line[line]) for line in lines]


# -- running tests


@dataclass(frozen=True, slots=True)
class TestRun:
    """What a run of pytest gave."""

    exit: int
    failed: list[str]
    finished: int
    secs: float  # of CPU time
    end: str  # "", "stuck", "too much CPU time"
    output: str


def _become_python_of(tree: Path) -> None:
    """Start over as the tree's Python, with the settings of `make test`: runs of tests are forks of this process."""
    own = tree.absolute() / ".venv/bin/python"
    python = str(own) if own.exists() else sys.executable
    settings = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    if not settings.items() <= os.environ.items():
        os.execve(python, [python, *sys.argv], os.environ | settings)


def _become_reaper() -> None:
    """Orphans of tests become this process's children, so that they can be ended with them."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _family() -> dict[int, str]:
    """All processes below this one, and the state of each."""
    parents, states = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                parents[int(folder.name)], states[int(folder.name)] = int(parent), state
    below, size = {os.getpid()}, 0
    while len(below) > size:
        size = len(below)
        below |= {process for process, parent in parents.items() if parent in below}
    return {process: states[process] for process in below - {os.getpid()}}


def _end_family() -> None:
    while processes := _family():
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def _wait(process: int) -> tuple[int, str]:
    """Wait for the end of a run, or give up when nothing has been computed for long: its exit status, and which."""
    idle = 0.0
    for waited in itertools.count(1):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code, "too much CPU time" if code == -signal.SIGXCPU else ""
        time.sleep(0.1)
        if waited % 30 == 0:
            # A process that waits for a core on a busy machine is in state R. Some wake now and then to look around.
            idle = max(0.0, idle - 30) if set(_family().values()) & {"R", "D"} else idle + 3
            if idle > STUCK_SECS:
                break
    return -signal.SIGKILL, "stuck"


class Tree:
    """A checkout whose src is changed and whose tests are run."""

    def __init__(self, root: Path, package: Path, results: Path, start_secs: float) -> None:
        self.root, self.package, self.results = root.resolve(), package, results.resolve()
        self._start_secs = start_secs
        changed = subprocess.run(["git", "status", "--porcelain", package], cwd=root, capture_output=True, text=True)
        if changed.stdout:
            raise SystemExit(f"{root} has changes: `git -C {root} checkout {package}` puts back what mutants left")
        probe = self.root / package.parent / f"{PROBE}.py"
        probe.write_text(PROBE_SOURCE.format(reached=str(self.results / "reached.jsonl")))

    @contextmanager
    def changed(self, files: dict[str, bytes]) -> Iterator[None]:
        """Within this, files have other contents, and a time of change that no compiled file knows."""
        before = {self.root / file: (self.root / file).read_bytes() for file in files}
        try:
            for file, source in files.items():
                (self.root / file).write_bytes(source)
                future = time.time() + random.random() * 1e8
                os.utime(self.root / file, (future, future))
            yield
        finally:
            for path, source in before.items():
                path.write_bytes(source)

    def run(self, tests: Sequence[str], *options: str, test_secs: float = 3600.0, notes: Path | None = None) -> TestRun:
        """Run tests (files, or names) in a pytest of their own, which take `test_secs` of CPU time when all is well."""
        noted = notes or self.results / f"run-{os.getpid()}.jsonl"
        if notes is None:
            noted.unlink(missing_ok=True)
        most_secs = int(self._start_secs + 4 * test_secs)  # of any one process
        before = os.times()
        with tempfile.TemporaryFile() as output:
            sys.stdout.flush()
            process = os.fork()
            if not process:
                resource.setrlimit(resource.RLIMIT_CPU, (most_secs, most_secs + 5))
                self._be_pytest(["-q", "-p", PROBE, *PYTEST_OPTIONS, *options, *tests], output.fileno(), noted)
            try:
                status, end = _wait(process)
            finally:
                _end_family()
            output.seek(0)
            text = output.read().decode(errors="replace")
        now = os.times()
        secs = now.children_user + now.children_system - before.children_user - before.children_system
        facts = _lines_of(noted)
        failed = [fact["test"] for fact in facts if fact["failed"]]
        return TestRun(status, failed, len(facts), secs, end, text[-2000:])

    def _be_pytest(self, arguments: list[str], output: int, noted: Path) -> NoReturn:
        """In a fork, which has torch imported already: half of what a run of few tests costs otherwise."""
        status = 3
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            source = str(self.root / self.package.parent)
            os.environ.update({"PYTHONPATH": source, "MUTANT_TESTS": str(noted)})
            os.chdir(self.root)
            sys.path[0] = source  # before was the folder of this file
            sys.argv = ["pytest", *arguments]
            status = int(importlib.import_module("pytest").main(arguments))
            sys.stdout.flush()
        finally:
            os._exit(status)


def _lines_of(path: Path) -> list[Any]:
    """The JSON lines of a file that only grows; none where it is not there yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, fact: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(fact) + "\n")


# -- the steps


def note_reached(tree: Tree, mutants: Sequence[Mutant], *options: str) -> None:
    """Run the fast tests once, in batches, with probes at all mutants."""
    files: dict[str, dict[int, Mutation]] = defaultdict(dict)
    for index, mutant in enumerate(mutants):
        if mutation := mutant.found_in((tree.root / mutant.file).read_bytes()):
            files[mutant.file][index] = mutation
    probed = {file: put_probes((tree.root / file).read_bytes(), there) for file, there in files.items()}
    tests = sorted(path.relative_to(tree.root).as_posix() for path in (tree.root / "tests").glob("test_*.py"))
    random.Random(0).shuffle(tests)  # so that each batch takes about as long
    batches = [tests[start : start + FILES_A_BATCH] for start in range(0, len(tests), FILES_A_BATCH)]
    done = {file for batch in _lines_of(tree.results / "batches.jsonl") for file in batch["files"]}
    with tree.changed(probed):
        for number, batch in enumerate(batches, 1):
            if batch := [file for file in batch if file not in done]:
                run = tree.run(batch, *options, notes=tree.results / "tests.jsonl")
                _append(tree.results / "batches.jsonl", {"files": batch, "exit": run.exit, "secs": run.secs})
                print(f"batch {number} of {len(batches)}: {run.secs:.0f} s, {run.output.splitlines()[-1]}", flush=True)


class Coverage:
    """Which tests reach which mutant, and what each costs."""

    def __init__(self, tree: Tree) -> None:
        self._root = tree.root
        self.by_mutant: dict[int, set[str]] = defaultdict(set)
        for mutant, test in _lines_of(tree.results / "reached.jsonl"):
            self.by_mutant[mutant].add(test)
        facts = _lines_of(tree.results / "tests.jsonl")
        self.secs: dict[str, float] = {fact["test"]: fact["secs"] for fact in facts}
        self.failed = {fact["test"] for fact in facts if fact["failed"]}  # with probes in the source
        self.doubtful = self.failed
        self._breadth = Counter(test for tests in self.by_mutant.values() for test in tests)

    def tests_of(self, index: int, mutant: Mutant) -> list[str]:
        """The tests to judge a mutant by, nearest first: those that reach few mutants and cost little, of each file."""
        tests = self.by_mutant[index] & self.secs.keys() - self.doubtful
        if not tests and "" in self.by_mutant[index]:  # reached only while modules were imported: by whoever names it
            tests = self._tests_that_name(Path(mutant.file).stem, self.secs.keys() - self.doubtful)
        if not tests:  # a process that may open no file noted nothing, and failed: only with probes in the source
            tests = self._tests_that_name(_room(mutant), self.failed - self.doubtful)
        ranked = self._ranked(tests)
        if (
            len(ranked) < FIRST_TESTS
        ):  # what a fixture of a whole file does, or its process, is noted for its first test
            files = {_file(test) for test in tests}
            ranked += self._ranked({test for test in self.secs if _file(test) in files} - tests - self.doubtful)
        chosen: list[str] = []
        left = MOST_SECS
        for test in ranked:
            if self.secs[test] <= left and len(chosen) < MOST_TESTS:
                chosen.append(test)
                left -= self.secs[test]
        return chosen

    def _ranked(self, tests: Iterable[str]) -> list[str]:
        """Nearest first, some of each file in turn."""
        in_file: Counter[str] = Counter()
        ranked = []
        for test in sorted(tests, key=lambda test: (self._breadth[test], self.secs[test], test)):
            ranked.append((in_file[_file(test)] // 4, self._breadth[test], self.secs[test], test))
            in_file[_file(test)] += 1
        return [test for *_, test in sorted(ranked)]

    def _tests_that_name(self, name: str, tests: Iterable[str]) -> set[str]:
        """Those in files where the word stands."""
        files = {_file(test) for test in tests}
        word = re.compile(rf"\b{name.removesuffix('.py')}\b")
        naming = {file for file in files if word.search((self._root / file).read_text())}
        return {test for test in tests if _file(test) in naming}


def _file(test: str) -> str:
    return test.partition("::")[0]


def _by_file(tests: Sequence[str]) -> list[str]:
    """In the order of files as first named: each file is collected once."""
    places = {file: place for place, file in enumerate(dict.fromkeys(map(_file, tests)))}
    return sorted(tests, key=lambda test: places[_file(test)])


def judge(tree: Tree, mutant: Mutant, tests: Sequence[str], costs: dict[str, float]) -> dict[str, Any]:
    """Write the fault, run tests until one fails, put the file back; say what came of it."""
    source = (tree.root / mutant.file).read_bytes()
    mutation = mutant.found_in(source)
    if mutation is None:
        return {"outcome": "gone"}
    secs, tried = 0.0, 0
    for part in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]):
        if not part:
            continue
        with tree.changed({mutant.file: mutate(source, mutation)}):
            run = tree.run(_by_file(part), "-x", test_secs=sum(costs[test] for test in part))
        secs, tried = secs + run.secs, tried + run.finished
        if run.exit or run.end:
            by = run.failed[0] if run.failed else run.end or f"exit {run.exit}"
            return {"outcome": "found", "by": by, "tests": tried, "secs": round(secs, 1), "output": run.output[-300:]}
    return {"outcome": "survived" if tests else "not reached", "tests": tried, "secs": round(secs, 1)}


def fails_without_mutant(tree: Tree, tests: Sequence[str], *options: str) -> set[str]:
    """Which of these fail, or cannot be collected, on the source as it is."""
    if not tests:
        return set()
    run = tree.run(_by_file(tests), *options)
    if run.exit in (0, 1) and not run.end:
        return set(run.failed)
    if len(tests) == 1:
        return set(tests)
    half = len(tests) // 2  # a name that pytest does not find again hides all others
    return fails_without_mutant(tree, tests[:half], *options) | fails_without_mutant(tree, tests[half:], *options)


class Trust:
    """Which tests fail on the source as it is, as far as that was tried."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._file = tree.results / "checked.jsonl"

    def known(self) -> dict[str, bool]:
        return {fact["test"]: fact["fails"] for fact in _lines_of(self._file)}

    def check(self, tests: Iterable[str], *options: str) -> None:
        new = sorted(set(tests) - self.known().keys())
        failing = fails_without_mutant(self._tree, new, *options)
        for test in new if not options else failing:  # one that can be collected may fail yet
            _append(self._file, {"test": test, "fails": test in failing})


def judge_all(tree: Tree, mutants: Sequence[Mutant], part: str) -> None:
    number, parts = map(int, part.split("/"))
    mine = range(number - 1, len(mutants), parts)
    coverage, trust = Coverage(tree), Trust(tree)
    if number == 1:
        trust.check(coverage.failed)  # perhaps only the probes disturbed them
    again = True
    while again:
        known = trust.known()
        coverage.doubtful = {test for test in coverage.failed if known.get(test, True)}
        coverage.doubtful |= {test for test, fails in known.items() if fails}
        again = False
        for index in mine:
            judged = read_judged(tree.results)
            if index in judged and judged[index].get("by") not in coverage.doubtful:
                continue
            again = True
            tests = coverage.tests_of(index, mutants[index])
            fact = judge(tree, mutants[index], tests, coverage.secs)
            if str(fact.get("by", "")).startswith("exit"):  # no test failed: is a name not there, or the module broken?
                trust.check(tests, "--collect-only")
                if any(trust.known().get(test) for test in tests):
                    continue  # again without these
            _append(tree.results / "judged.jsonl", {"mutant": index, **fact})
            print(f"{len(judged) + 1} of {len(mutants)}: {_sentence(mutants[index], fact)}", flush=True)
        judged = read_judged(tree.results)
        trust.check(judged[index]["by"] for index in mine if "::" in judged[index].get("by", ""))


# -- what came of it


def read_mutants(results: Path) -> list[Mutant]:
    drawn = json.loads((results / "mutants.json").read_text())["mutants"]
    return [Mutant(fact["file"], fact["line"], tuple(fact["description"]), fact["nth"]) for fact in drawn]


def read_judged(results: Path) -> dict[int, dict[str, Any]]:
    return {fact["mutant"]: fact for fact in _lines_of(results / "judged.jsonl")}  # the last word on each


def _room(mutant: Mutant) -> str:
    return mutant.file.split("/")[2]


def _sentence(mutant: Mutant, fact: dict[str, Any]) -> str:
    function, _, kind, before, after = mutant.description
    change = f"`{before}` → `{after}`" if kind != "statement" else f"without `{before}`"
    by = f" ({fact['by']})" if "by" in fact else ""
    return f"{fact['outcome']}: {mutant.file}:{mutant.line} {function}: {change}{by}"


def table(mutants: Sequence[Mutant], judged: dict[int, dict[str, Any]]) -> str:
    """Counts by room, and of all."""
    rooms: dict[str, Counter[str]] = defaultdict(Counter)
    for index, fact in judged.items():
        for name in (_room(mutants[index]), "all"):
            rooms[name][fact["outcome"]] += 1
    lines = ["| room | mutants | found | survived | not reached | share found |", "|---|---:|---:|---:|---:|---:|"]
    for room in sorted(rooms, key=lambda room: (room == "all", room)):
        counts = rooms[room]
        found, survived, missed = counts["found"], counts["survived"], counts["not reached"]
        share = f"{found / max(found + survived + missed, 1):.0%}"
        lines.append(f"| {room} | {found + survived + missed} | {found} | {survived} | {missed} | {share} |")
    if gone := rooms["all"]["gone"]:
        lines.append(f"\n{gone} have no place in this source any more, and are counted nowhere.")
    return "\n".join(lines)


def compare(mutants: Sequence[Mutant], before: dict[int, dict[str, Any]], after: dict[int, dict[str, Any]]) -> str:
    """How the share found changed, over the mutants that both know, and which are no longer found."""
    both = [
        index
        for index in before.keys() & after.keys()
        if "gone" not in (before[index]["outcome"], after[index]["outcome"])
    ]
    shares = [
        100 * sum(facts[index]["outcome"] == "found" for index in both) / max(len(both), 1) for facts in (before, after)
    ]
    points = f"{shares[1] - shares[0]:+.1f} points"
    lines = [f"{len(both)} mutants: found {shares[0]:.1f} % before, {shares[1]:.1f} % now ({points})"]
    for index in sorted(both):
        if before[index]["outcome"] == "found" != after[index]["outcome"]:
            lines.append(f"lost: {_sentence(mutants[index], after[index])}, found before by {before[index]['by']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("--tree", type=Path, help="a checkout that nothing else uses; without it, only the table")
    parser.add_argument("--package", type=Path, default=Path("src/torcheer"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument(
        "--parallel", default="--workers 2", help="options of pytest for the run that notes what is reached"
    )
    parser.add_argument("--part", default="1/1", help="2/3: judge the second of three parts, each in a tree of its own")
    parser.add_argument(
        "--start-secs", type=float, default=60.0, help="CPU time for pytest and imports; then it is ended"
    )
    parser.add_argument("--compare", type=Path, metavar="BEFORE")
    options = parser.parse_args()
    if options.tree is not None:
        _become_python_of(options.tree)
        os.nice(19)
        _become_reaper()
        for name in PRELOADED:
            with suppress(ImportError):
                importlib.import_module(name)
        options.results.mkdir(parents=True, exist_ok=True)
        tree = Tree(options.tree, options.package, options.results, options.start_secs)
        if not (options.results / "mutants.json").exists():
            if options.compare is not None:
                mutants = read_mutants(options.compare)
            else:
                mutants = draw_mutants(tree.root / options.package, options.count, options.seed)
            lines = ",\n".join(json.dumps(asdict(mutant), ensure_ascii=False) for mutant in mutants)
            (options.results / "mutants.json").write_text(f'{{"seed": {options.seed}, "mutants": [\n{lines}\n]}}\n')
        mutants = read_mutants(options.results)
        if options.part.startswith("1/"):
            note_reached(tree, mutants, *options.parallel.split())
        judge_all(tree, mutants, options.part)
    mutants, judged = read_mutants(options.results), read_judged(options.results)
    print(table(mutants, judged))
    for index, fact in sorted(judged.items()):
        if fact["outcome"] != "found":
            print(_sentence(mutants[index], fact))
    if options.compare is not None:
        print(compare(mutants, read_judged(options.compare), judged))


if __name__ == "__main__":
    main()

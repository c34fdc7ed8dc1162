"""torcheer on other versions of torch and Python: the table of docs/versions.md.

`make test-versions` runs every pair; `versions.py 2.15@3.11 2.9@3.11` runs some. One environment at a time is made in
a temporary folder and removed again. The builds of torch on PyPI want four gigabytes of CUDA libraries, which a
machine without a GPU never calls: torch's own wheel is installed alone, and small libraries that answer "no device"
stand in for them (`stand_in_libraries`). Where there is no C compiler, the real ones are installed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
SMOKE = Path(__file__).with_name("version_smoke.py")
PARTS = ("probes", "capture", "compiled", "autograd", "watch", "extract", "train", "README")
NEWEST = "2.15"
TORCHES = ("2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
PAIRS = (*(f"{torch}@3.11" for torch in TORCHES), *(f"{NEWEST}@{python}" for python in ("3.12", "3.13", "3.14")))
TIMEOUT_SECS = 1800
_CUDA = re.compile(r"(nvidia|cuda|triton)", re.IGNORECASE)  # packages
_CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
_CUDA_SYMBOL = re.compile(r"_*(cu|nv|nccl)")


class Row(NamedTuple):
    """One environment: versions, and for each part "ok", "–" (not run) or what went wrong."""

    torch: str
    python: str
    system: str
    date: str
    parts: tuple[str, ...]


def main(pairs: list[str]) -> int:
    """Try each pair; write the table after each."""
    if sys.platform.startswith("linux") and not shutil.which("cc"):
        print("no C compiler (cc): torch brings its CUDA libraries, four gigabytes for each version", flush=True)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="torcheer-versions-") as folder:
        wheel = build_wheel(Path(folder))
        for pair in pairs or PAIRS:
            torch, _, python = pair.partition("@")
            start = time.monotonic()
            try:
                row = try_pair(torch, python or "3.11", wheel)
            except Unavailable as reason:
                print(f"{pair}: left out: {reason}", flush=True)
                continue
            write_table(row)
            problems = [text for text in row.parts if text not in ("ok", "–")]
            failures += bool(problems)
            print(f"{pair}: {'; '.join(problems) or 'ok'} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failures else 0


class Unavailable(Exception):
    """This version of Python or torch cannot be had here."""


def try_pair(torch: str, python: str, wheel: Path) -> Row:
    """Make an environment, run every part in it, remove it."""
    interpreter = find_python(python)
    with environment(interpreter) as folder:
        executable = folder / "bin" / "python"
        install_torch(executable, torch)
        pip(executable, "install", str(wheel))
        before = torch_version(executable)
        said = smoke(executable)
        pip(executable, "install", f"{wheel}[all]", "tensorboard")
        readme = run_readme(executable)
        if torch_version(executable) != before:
            said["capture"] = f"torch was replaced: {before} by {torch_version(executable)}"
        said["README"] = readme
        date = datetime.now(UTC).date().isoformat()
        version = subprocess.run([executable, "-V"], capture_output=True, text=True).stdout.split()[-1]
        system = f"{platform.system()} {platform.machine()}"
        return Row(before, version, system, date, tuple(said.get(part, "–") for part in PARTS))


# -- environments ----------------------------------------------------------------------------------------------------


def find_python(version: str) -> Path:
    """Return an interpreter of this version: from PATH, pyenv, or the folder PYTHONS."""
    roots = [Path(os.environ[name]) for name in ("PYTHONS", "PYENV_ROOT") if os.environ.get(name)]
    candidates = [shutil.which(f"python{version}"), sys.executable]
    for root in (*roots, Path.home() / ".pyenv"):
        candidates += sorted(root.glob(f"**/{version}*/bin/python3"), reverse=True)[:1] if root.is_dir() else []
    for candidate in filter(None, candidates):
        code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.split()[0] == version:
            return Path(candidate)
    raise Unavailable(f"there is no Python {version} with venv here (on PATH, in pyenv, below $PYTHONS)")


@contextmanager
def environment(python: Path) -> Iterator[Path]:
    """A new virtual environment, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="torcheer-version-") as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        yield Path(folder)


def pip(executable: Path, *words: str) -> None:
    command = [executable, "-m", "pip", "-qq", "--no-input", "--disable-pip-version-check", "--no-cache-dir", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"pip {' '.join(words)}: {done.stderr.strip().splitlines()[-1][:300]}")


def install_torch(executable: Path, version: str) -> None:
    """Install the newest torch of a minor version, without the packages that only a GPU needs."""
    wanted = f"torch=={version}.*"
    if not sys.platform.startswith("linux") or not shutil.which("cc"):
        pip(executable, "install", wanted)
        return
    pip(executable, "install", "--no-compile", "--no-deps", wanted)
    packages = next(executable.parents[1].glob("lib/python*/site-packages"))
    about = next(packages.glob("torch-*.dist-info"))
    needs = [need for need in PathDistribution(about).requires or () if "extra ==" not in need]
    pip(executable, "install", "--no-compile", *(need for need in needs if not _CUDA.match(need)))
    metadata = about / "METADATA"
    kept = [
        line for line in metadata.read_text().splitlines() if not re.match(rf"Requires-Dist: {_CUDA.pattern}", line)
    ]
    metadata.write_text("\n".join(kept) + "\n")  # or pip fetches them with the next package
    stand_in_libraries(packages / "torch" / "lib")


def stand_in_libraries(folder: Path) -> None:
    """Make a library for each one of CUDA's that torch is linked to; every function in it answers "no device"."""
    libraries = sorted(folder.glob("*.so"))
    needed: set[str] = set()
    versions: dict[str, str] = {}  # library -> the version that its symbols carry
    symbols: dict[str, set[str]] = {}  # version -> symbols
    for library in libraries:
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", "-W", str(library))))
        file = ""
        for kind, word in re.findall(r"(File|Name): (\S+)", output("readelf", "-V", "-W", str(library))):
            if kind == "File":
                file = word
            elif _CUDA_LIBRARY.match(file):
                versions[file] = word
        for line in output("nm", "-D", "--undefined-only", str(library)).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            if _CUDA_SYMBOL.match(symbol):
                symbols.setdefault(version, set()).add(symbol)
    with tempfile.TemporaryDirectory() as work:
        code, script = Path(work) / "code.c", Path(work) / "versions.map"
        for name in sorted(needed):
            if not _CUDA_LIBRARY.match(name) or (folder / name).exists():
                continue
            version = versions.get(name, name)
            own = symbols.get(version, set()) | (symbols.get("", set()) if name.startswith("libcudart") else set())
            code.write_text("".join(f"int {symbol}(void) {{ return 100; }}\n" for symbol in sorted(own)))
            script.write_text(f"{version} {{ global: *; }};\n")
            options = ["-shared", "-w", "-fno-builtin", f"-Wl,-soname,{name}", f"-Wl,--version-script={script}"]
            subprocess.run(["cc", *options, "-o", folder / name, code], check=True)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("*.whl"))


# -- what runs in them -----------------------------------------------------------------------------------------------


def torch_version(executable: Path) -> str:
    return output(str(executable), "-c", "import torch; print(torch.__version__)").strip()


def smoke(executable: Path) -> dict[str, str]:
    done = run_isolated(executable, SMOKE)
    lines = done.stdout.strip().splitlines()
    try:
        parts = json.loads(lines[-1])["parts"]
    except (IndexError, ValueError):
        return {"capture": f"ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['nothing'])[-1]}"}
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return {name: "ok" if part["ok"] else part["text"] for name, part in parts.items()}


def run_readme(executable: Path) -> str:
    """Run the README's Python blocks in order, as one program."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "readme.py"
        program.write_text("\n".join(blocks), encoding="utf-8")
        done = run_isolated(executable, program, cwd=folder)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:300]
    return "ok"


def run_isolated(executable: Path, program: Path, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [executable, program], capture_output=True, text=True, timeout=TIMEOUT_SECS, cwd=cwd, env=variables
    )


# -- the table -------------------------------------------------------------------------------------------------------

_BEGIN, _END = "<!-- versions: written by `make test-versions` -->\n", "<!-- end of versions -->"


def write_table(row: Row) -> None:
    """Put a row into the page, in place of an earlier one of the same versions."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(_BEGIN)
    old, _, tail = rest.partition(_END)
    rows = {key(other): other for other in map(parse, old.splitlines()) if other is not None} | {key(row): row}
    lines = ["| torch | Python | system | date | " + " | ".join(PARTS) + " |", "|" + "---|" * 4 + ":-:|" * len(PARTS)]
    for _, entry in sorted(rows.items()):
        lines.append("| " + " | ".join([*entry[:4], *entry.parts]) + " |")
    PAGE.write_text(head + _BEGIN + "\n".join(lines) + "\n" + _END + tail, encoding="utf-8")


def key(row: Row) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    return minor(row.python), minor(row.torch), row.system


def minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def parse(line: str) -> Row | None:
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != 4 + len(PARTS) or not re.match(r"\d+\.\d+", cells[0]):
        return None
    return Row(*cells[:4], tuple(cells[4:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

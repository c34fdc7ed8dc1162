"""Files that were made to break their reader: each costs one row, says why, and everything else is served."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seams import (
    EVENTS,
    LIGHTNING,
    FileSource,
    ReadingProcess,
    Request,
    ask_readers,
    list_cells,
    masked_sums,
    open_apart,
    open_catalog,
    read_foreign,
    reading_process,
)
from seams import MOST_READ as MOST

from torcheer.errors import ArchiveDamaged, TorcheerError
from torcheer.modelfiles import open_model_file

DATA = Path(__file__).parent / "data"


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHEER_STATE", str(tmp_path_factory.mktemp("state")))


# -- files of TensorBoard and Lightning --------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def part(number: int, body: bytes) -> bytes:
    """A field of protobuf that has bytes."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def record(body: bytes) -> bytes:
    """A record of an event file, with its checksums."""
    length = struct.pack("<Q", len(body))
    sums = masked_sums([memoryview(length)])[0], masked_sums([memoryview(body)])[0]
    return length + struct.pack("<I", sums[0]) + body + struct.pack("<I", sums[1])


def event(*values: bytes, step: int = 1) -> bytes:
    return record(b"\x10" + varint(step) + part(5, b"".join(part(1, value) for value in values)))


def scalar(tag: str, number: float) -> bytes:
    return part(1, tag.encode()) + b"\x15" + struct.pack("<f", number)


def png(width: int, height: int) -> bytes:
    """A picture of a size, all black, in few bytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compressobj()
    line = bytes(1 + width * 3)
    data = b"".join(rows.compress(line) for _ in range(height)) + rows.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def histogram(limits: list[float], counts: list[float]) -> bytes:
    fields = part(6, np.array(limits, "<f8").tobytes()) + part(7, np.array(counts, "<f8").tobytes())
    return part(1, b"h") + part(5, fields)


def tensor_of_single_numbers(count: int) -> bytes:
    """A tensor whose numbers are not packed: they were once joined one by one."""
    return part(1, b"t") + part(8, b"\x08\x03" + b"\x38\x01" * count)


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
RUNS: dict[str, Callable[[], dict[str, bytes]]] = {
    "a scalar of 8 bytes": lambda: {"e.tfevents.1": event(part(1, b"x") + b"\x11" + struct.pack("<d", 2.5))},
    "an infinite count": lambda: {"e.tfevents.1": event(histogram([0.0, 1.0, 2.0], [1.0, math.inf, math.nan]))},
    "aliases of YAML": lambda: {"metrics.csv": b"step,loss\n1,2\n", "hparams.yaml": ALIASES.encode()},
    "merged aliases": lambda: {
        "metrics.csv": b"step,loss\n1,2\n",
        "hparams.yaml": ("a: &a {x: 1}\n" + "".join(f"{n}: &{n} {{<<: [{', '.join([f'*{b}'] * 9)}]}}\n"
                         for b, n in zip("abcdefgh", "bcdefghi"))).encode(),
    },
    "deep YAML": lambda: {"metrics.csv": b"step,loss\n1,2\n", "hparams.yaml": b"a: " + b"[" * 5000},
    "numbers that are not packed": lambda: {"e.tfevents.1": event(tensor_of_single_numbers(400_000))},
    "20,000 tags": lambda: {
        "e.tfevents.1": b"".join(event(scalar(f"tag {each}", 1.0), step=each) for each in range(20_000))
    },
    "a number where a message belongs": lambda: {"e.tfevents.1": record(b"\x28\x07") + event(b"\x08\x07")},
    "a time that is no number": lambda: {"e.tfevents.1": record(b"\x09" + struct.pack("<d", math.nan) + b"\x10\x01")},
    "a step beyond 64 bits": lambda: {"e.tfevents.1": record(b"\x10" + b"\xff" * 9 + b"\x7f")},
    "a cell of a megabyte": lambda: {"metrics.csv": b"step,loss\n1," + b"9" * 1_000_000 + b"\n"},
    "a column twice": lambda: {"metrics.csv": b"step,loss,loss\n1,2,3\n"},
    "no columns": lambda: {"metrics.csv": b"\n\n\n"},
    "numbers of any length": lambda: {"metrics.csv": b"step,loss\n" + b"7" * 100_000 + b",1e999\n"},
    "an event file that is a folder": lambda: {"e.tfevents.1/x": b""},
    "settings in a link out": lambda: {"metrics.csv": b"step,loss\n1,2\n", "hparams.yaml": b"-> /etc/passwd"},
    "a log in a link out": lambda: {"metrics.csv": b"-> /etc/passwd"},
    "a named pipe": lambda: {"metrics.csv": b"|"},
}  # fmt: skip


def write_run(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data.startswith(b"-> "):
            path.symlink_to(data[3:].decode())
        elif data == b"|":
            os.mkfifo(path)
        else:
            path.write_bytes(data)
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_a_hostile_log_costs_its_own_row(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "a hostile one", RUNS[name]())
    shutil.copytree(DATA / "tensorboard", tmp_path / "good")
    catalog = open_catalog(tmp_path)
    finish(catalog)
    rows = {run.name: run.summary for run in catalog.runs}
    assert rows["good"] == "19 steps"
    shown = catalog.index is not None and list_cells(catalog.index, ["Problem"])
    assert shown and ("unreadable: " in str(shown)) == any("unreadable: " in summary for summary in rows.values())
    for run in catalog.runs:  # each page can be opened, and says something or shows nothing
        source = catalog.open_run(run.id)
        wait_until(partial(has_read, source))
        assert "root:" not in str(source.state) + str(source.parameters) + str(source.tables)


def has_read(source: Any) -> bool:
    source.poll()
    return getattr(source, "_reading", None) is None


def finish(catalog: Any) -> None:
    """Until every run of a folder has been read."""
    wait_until(lambda: not catalog.refresh() and not catalog.index.waiting)


def wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_of_more_event_files_than_a_process_may_open_is_read(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    write_run(tmp_path, {f"e.tfevents.{each:04}": event(scalar("x", each), step=each) for each in range(600)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 300), hard))
    try:
        run = read_foreign(tmp_path, EVENTS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert run.tables["metric"].columns["x"] == list(range(600)) and run.problems == []


def test_what_is_wrong_is_said_with_the_number_that_was_exceeded(tmp_path: Path) -> None:
    write_run(tmp_path / "tags", RUNS["20,000 tags"]())
    with pytest.raises(
        ArchiveDamaged, match=r"tags: its table of scalars needs 400,020,000 items or more; at most 10,000,000"
    ):
        read_foreign(tmp_path / "tags", EVENTS)
    run = read_foreign(write_run(tmp_path / "aliases", RUNS["aliases of YAML"]()), LIGHTNING)
    assert run.tables["metric"].columns == {"Step": [1], "loss": [2]} and len(str(run.config)) < 10_000
    run = read_foreign(write_run(tmp_path / "eight", RUNS["a scalar of 8 bytes"]()), EVENTS)
    assert "metric" not in run.tables and run.problems == [], (
        "a double where the format has a float, as TensorBoard does"
    )
    run = read_foreign(write_run(tmp_path / "infinite", RUNS["an infinite count"]()), EVENTS)
    assert sum(run.tables["h histogram"].columns["histogram"][0]) == 1
    with pytest.raises(TorcheerError, match=r"leads out of .*, and only what lies in it is read"):
        read_foreign(write_run(tmp_path / "link", RUNS["a log in a link out"]()), LIGHTNING)
    run = read_foreign(write_run(tmp_path / "settings", RUNS["settings in a link out"]()), LIGHTNING)
    assert run.config == {} and "hparams.yaml" in run.problems[0] and "leads out of" in run.problems[0]


def test_a_picture_of_more_pixels_than_are_decoded_says_how_many(tmp_path: Path) -> None:
    picture = part(1, b"p") + part(4, part(4, png(13_000, 13_000)))
    small = part(1, b"q") + part(4, part(4, png(30, 20)))
    run = read_foreign(write_run(tmp_path / "run", {"e.tfevents.1": event(picture) + event(small, step=2)}), EVENTS)
    with pytest.raises(ArchiveDamaged, match="the picture needs 169,000,000 pixels or more; at most 64,000,000"):
        _ = run.samples[0].array
    assert run.samples[1].pixels.shape == (20, 30, 3)


# -- model files -------------------------------------------------------------------------------------------------------


def safetensors(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


MODELS: dict[str, Callable[[], bytes]] = {
    "varints.onnx": lambda: part(
        7, part(5, b"\x08\x02\x10\x07" + part(8, b"w") + part(7, b"\x01" * 30_000_000 + b"\x80"))
    ),
    "nested.onnx": lambda: part(7, part(1, part(5, b"\x0b" * 1000))),
    "number.onnx": lambda: b"\x38\x01",
    "keys.safetensors": lambda: safetensors({"a" * 5_000_000: 1}),
    "empty.gguf": lambda: b"GGUF" + struct.pack("<IQQ", 3, 2**40, 2**40),
    "list.gguf": lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    + struct.pack("<IIQ", 9, 8, 2**60),
    "zip.pt": lambda: b"PK\5\6" + struct.pack("<4H2LH", 0, 0, 9, 9, 2**31, 0, 0),
    "nothing.pt2": lambda: b"",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model_file_ends_in_a_sentence_here_and_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(MODELS[name]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for opened in (open_apart, open_model_file):
        with pytest.raises(TorcheerError) as caught:
            opened(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        if opened is open_apart:
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert after - before < 200_000, "what it costs is spent in the other process"


def test_fields_and_nodes_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST, "steps", 20_000)
    monkeypatch.setitem(MOST, "items", 5_000)
    for data, words in (
        (part(7, b"\x30\x01" * 30_000), "m.onnx needs 20,[0-9]* steps or more; at most 20,000 are read of one file"),
        (part(7, b"\x0a\x00" * 6_000), "its list of nodes needs 5,001 items or more; at most 5,000"),
    ):
        path = tmp_path / "m.onnx"
        path.write_bytes(data)
        with pytest.raises(ArchiveDamaged, match=words):
            open_model_file(path)


@pytest.mark.parametrize("name", [".", "..", ".a.b", "a..b", "", " ", "a" * 9_000, "." * 9_000, "a." * 4_000 + "b"])
def test_a_tensor_of_any_name_is_shown(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(safetensors({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)))
    source = FileSource(path)
    assert source.net is not None and [placed.layer.name for placed in source.net.layers] == [name]
    assert source.graph(source.net).drawing


def test_a_name_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(safetensors({"a" * 20_000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)))
    with pytest.raises(ArchiveDamaged, match="is no name of a tensor: it has more than 10,000 characters"):
        open_apart(path)


def test_no_numbers_of_a_huge_shape_take_no_time(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(safetensors({"w": {"dtype": "F32", "shape": [2**46, 0], "data_offsets": [0, 0]}}))
    facts = open_model_file(path)["w"].statistics()
    assert facts["zeros"] == 0 and facts["minimum"] is None
    source = FileSource(path)
    wait_until(lambda: "tensors" in source.poll().tables)
    assert source.tables["tensors"].count == 1


# -- the process itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def process() -> Iterator[ReadingProcess]:
    process = ReadingProcess("safetensors", "onnx")
    yield process
    process.close()


def opener(path: Path) -> Callable[[str], int]:
    return lambda name: os.open(path.parent / name, os.O_RDONLY)


def good_file(folder: Path) -> Path:
    path = folder / "good.safetensors"
    path.write_bytes(safetensors({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)))
    return path


def pid_of(process: ReadingProcess) -> int:
    assert process._child is not None
    return process._child.popen.pid


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGSEGV, r"crashed \(SIGSEGV\)"), (signal.SIGKILL, "was killed"), (signal.SIGPROF, "processor time"),
     (signal.SIGSTOP, "took more than 1 s")],
)  # fmt: skip
def test_a_process_that_dies_or_hangs_is_replaced(
    tmp_path: Path, process: ReadingProcess, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """The signal arrives while it reads: it has asked for the file, and gets the signal before the descriptor."""
    path = good_file(tmp_path)
    request = Request("safetensors", path.name)
    assert process.ask(request, opener(path)).body["format"] == "safetensors"
    first = pid_of(process)
    if number == signal.SIGSTOP:
        monkeypatch.setattr(reading_process, "_MOST_SECS", 1.0)

    def strike(name: str) -> int:
        os.kill(first, number)
        return os.open(path, os.O_RDONLY)

    with pytest.raises(ArchiveDamaged, match=words):
        process.ask(request, strike)
    monkeypatch.undo()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert process.ask(request, opener(path)).body["format"] == "safetensors" and pid_of(process) != first


def test_it_is_used_again_after_a_file_that_cannot_be_read(tmp_path: Path, process: ReadingProcess) -> None:
    path = good_file(tmp_path)
    (tmp_path / "bad.safetensors").write_bytes(b"junk" * 10)
    process.ask(Request("safetensors", path.name), opener(path))
    first = pid_of(process)
    with pytest.raises(TorcheerError, match="header"):
        process.ask(Request("safetensors", "bad.safetensors"), opener(path))
    assert process.ask(Request("safetensors", path.name), opener(path)).files == (path.name,)
    assert pid_of(process) == first


def test_processor_time_has_an_end(tmp_path: Path) -> None:
    process = ReadingProcess("onnx", cpu_secs=0.05)
    path = tmp_path / "m.onnx"
    path.write_bytes(part(7, b"\x30\x01" * 20_000_000))
    with pytest.raises(ArchiveDamaged, match="took more than 0 s of processor time"):
        process.ask(Request("onnx", path.name), opener(path))
    process.close()


def test_threads_take_turns(tmp_path: Path, process: ReadingProcess) -> None:
    path, formats = good_file(tmp_path), list[str]()

    def ask() -> None:
        formats.extend(process.ask(Request("safetensors", path.name), opener(path)).body["format"] for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert formats == ["safetensors"] * 80


LIMITED = """
import os, socket, sys, mmap
from torcheer.foreign.readers.limits import limit_this_process
big, other = sys.argv[1:]
fd = os.open(big, os.O_RDONLY)
print(*limit_this_process())
def tried(name, work):
    try:
        work()
        print(name, "worked")
    except BaseException as error:
        print(name, type(error).__name__)
tried("open", lambda: open(other).read())
tried("write", lambda: os.open(other, os.O_WRONLY))
tried("socket", lambda: socket.socket())
tried("fork", os.fork)
tried("exec", lambda: os.execv(sys.executable, [sys.executable, "-c", "print('executed')"]))
tried("kill", lambda: os.kill(os.getppid(), 0))
tried("unlink", lambda: os.unlink(other))
tried("memory", lambda: len(bytearray(3 << 30)))
tried("map", lambda: mmap.mmap(fd, 0, access=mmap.ACCESS_READ)[-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of memory and of calls are Linux's")
def test_it_can_neither_open_nor_connect_nor_start_nor_swell(tmp_path: Path) -> None:
    big, other = tmp_path / "big", tmp_path / "other"
    with open(big, "wb") as file:
        file.truncate(10 << 30)
    other.write_text("secret")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(big), str(other)], capture_output=True, text=True, check=False
    )
    answers = dict(line.split(" ", 1) for line in done.stdout.splitlines()[1:])
    assert done.stdout.splitlines()[0] == "memory calls", done.stdout + done.stderr
    assert answers.pop("memory") == "MemoryError" and answers.pop("map") == "worked", done.stdout + done.stderr
    assert set(answers.values()) == {"PermissionError"}, answers
    assert other.read_text() == "secret"


STARTED = """
import multiprocessing, os, sys
from pathlib import Path
from torcheer.modelfiles.model_file import open_apart
def read(path):
    print(len(open_apart(Path(path))), flush=True)
if __name__ == "__main__":
    path = sys.argv[1]
    read(path)
    if os.fork() == 0:
        read(path)
        os._exit(0)
    os.wait()
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=read, args=(path,), daemon=True)
        child.start()
        child.join()
    read(path)
"""


def test_it_starts_from_forked_and_daemonic_processes(tmp_path: Path) -> None:
    path, program = good_file(tmp_path), tmp_path / "program.py"
    program.write_text(STARTED)
    done = subprocess.run([sys.executable, str(program), str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1"] * 5, done.stderr


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    path = good_file(tmp_path)
    code = (
        "import os; from torcheer.modelfiles.model_file import open_apart; from torcheer.foreign import ask_readers\n"
    )
    code += f"open_apart({str(path)!r}); print(ask_readers._PROCESSES[0]._child.popen.pid, flush=True)\n"
    code += "os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_it_ends_with_its_parent_while_it_reads(tmp_path: Path) -> None:
    """Reading this file to its limit takes seconds of processor time; the parent is killed once that has begun."""
    path = tmp_path / "m.onnx"
    path.write_bytes(part(7, b"\x30\x01" * 30_000_000))
    code = "import os, threading, time; from torcheer.modelfiles.model_file import open_apart\n"
    code += "from torcheer.foreign import ask_readers\n"
    code += f"threading.Thread(target=open_apart, args=({str(path)!r},), daemon=True).start()\n"
    code += "while (child := ask_readers._PROCESSES[0]._child) is None: time.sleep(0.001)\n"
    code += "def spent(): return int(open(f'/proc/{child.popen.pid}/stat').read().split()[13])\n"
    code += "before = 0\n"
    code += "while not (before and spent() > before): before = before or ('m.onnx' in\n"
    code += "    open(f'/proc/{child.popen.pid}/maps').read() and spent() + 5); time.sleep(0.01)\n"
    code += "print(child.popen.pid, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    stat, spent = Path(f"/proc/{int(done.stdout)}/stat"), [0]
    wait_until(lambda: not keep_last(stat, spent))
    assert spent[-1] < 2.5 * os.sysconf("SC_CLK_TCK"), spent[-1]


def keep_last(stat: Path, spent: list[int]) -> bool:
    """Whether a process lives; its processor time is kept."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    spent.append(int(fields[11]))
    return fields[0] != "Z"


def test_the_page_is_there_before_a_file_that_takes_long_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stopped, as if a file took for ever: the catalog opens, and the source comes once it goes on."""
    path = good_file(tmp_path)
    open_apart(path)
    pid = pid_of(ask_readers._PROCESSES[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        catalog = open_catalog(path)
        assert catalog.first().title == "reading good.safetensors" and catalog.find_first_run() is None
    finally:
        os.kill(pid, signal.SIGCONT)
    sources = list[Any]()
    wait_until(lambda: sources.append(catalog.find_first_run()) or sources[-1] is not None)
    assert sources[-1].kind == "file"

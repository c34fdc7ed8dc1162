"""What it costs to keep four layers of a model over a dataset, beside the bare loop, raw writes and other ways.

    python benchmarks/extraction.py [--device cuda] [--rounds 3] [--peer-rounds 1] [--samples 512] [--disk FOLDER]

Two models, residual streams of a decoder and ResNet-18, each to a RAM disk and to a disk. In every round all ways take
their turn; a way's time is given as a multiple of the limit of its round: the bare loop, or the same bytes written raw
by as many threads, whichever takes longer. Every way ends when its bytes are synced to their files. Beside the time
stands the processors' (`cpu`), and how much memory a way had more at most than before it: of the process, and of the
GPU. Two batches of `tl.extract` show what it costs whatever the length. On a GPU the sizes are 256 × 512 tokens of a
Llama-shaped model of 1B parameters in bfloat16, and 4,096 images. Stored rows are then read in random order, beside
plain reads of their files. TorchLens changes torch for good, so it has a process of its own,
and few images.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from processes import processor
from report import table, write_section
from zoo_torchvision import load

import torcheer as tl
from torcheer.encoding import has_fast_crc32
from torcheer.extraction import open_extraction

FLOOR = 1.25  # of the limit
READ_FLOOR = 0.8  # of the speed of plain reads
WRITERS = 4  # what tl.extract uses, too
BLOCK_BYTES = 16 << 20
RAM_DISK = Path("/dev/shm")
TORCHLENS_IMAGES = 64


@dataclass
class Workload:
    """A model, its data, and the four layers to keep."""

    name: str
    model: Any
    layers: list[str]
    data: Any
    batch_size: int
    device: str
    sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)  # of one sample's values

    def batches(self) -> Iterator[Any]:
        for batch in DataLoader(self.data, batch_size=self.batch_size):
            yield batch.to(self.device, non_blocking=True)

    def first_batches(self, count: int) -> Workload:
        """The same with fewer samples."""
        return replace(self, data=Repeated(self.data.some, count * self.batch_size))

    def total_bytes(self) -> int:
        return len(self.data) * sum(int(np.prod(shape)) * kind.itemsize for shape, kind in self.sizes.values())


class Repeated(torch.utils.data.Dataset[Any]):
    """Samples made of few different ones: their content costs nothing here."""

    def __init__(self, some: torch.Tensor, count: int) -> None:
        self.some, self._count = some, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.some[index % len(self.some)]


def first_tensor(value: Any) -> torch.Tensor:
    """The residual stream: some decoders' blocks return a tuple that begins with it."""
    return value[0] if isinstance(value, tuple) else value


def residual_streams(device: str, samples: int) -> Workload:
    torch.manual_seed(0)
    load()  # transformers imports torchvision
    if device == "cuda":
        from transformers import LlamaConfig, LlamaModel

        shape = LlamaConfig(
            hidden_size=2048, num_hidden_layers=16, intermediate_size=8192, num_attention_heads=32,
            num_key_value_heads=8, vocab_size=32000, use_cache=False,
        )  # fmt: skip
        with torch.device(device):  # a billion random numbers take half a minute elsewhere
            model = LlamaModel(shape).to(torch.bfloat16)
        names = [f"layers.{number}" for number in (3, 7, 11, 15)]
        return made("residual streams", model, names, torch.randint(0, 32000, (64, 512)), samples or 256, 8, device)
    from transformers import GPT2Config, GPT2Model

    small = GPT2Config(n_embd=256, n_layer=4, n_head=4, vocab_size=1000, n_positions=128, use_cache=False)
    names, tokens = [f"h.{number}" for number in range(4)], torch.randint(0, 1000, (64, 128))
    return made("residual streams", GPT2Model(small), names, tokens, samples or 512, 16, device)


def resnet(device: str, samples: int) -> Workload:
    torch.manual_seed(0)
    images, names = torch.rand(64, 3, 224, 224), ["layer1", "layer2", "layer3", "layer4"]
    count, batch = (4096, 64) if device == "cuda" else (128, 32)
    return made("ResNet-18", load().models.resnet18(), names, images, samples or count, batch, device)


def made(name: str, model: Any, layers: list[str], some: Any, count: int, batch: int, device: str) -> Workload:
    workload = Workload(name, model.to(device).eval(), layers, Repeated(some, count), batch, device)
    with hooked(workload) as kept, torch.no_grad():
        for _ in range(2):
            workload.model(some[:batch].to(device))
        workload.sizes = {name: (tuple(value.shape[1:]), value.dtype) for name, value in kept.items()}
    return workload


@contextmanager
def hooked(workload: Workload) -> Iterator[dict[str, torch.Tensor]]:
    """What forward hooks see of the last batch."""
    kept: dict[str, torch.Tensor] = {}
    handles = [
        workload.model.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: kept.update({name: first_tensor(out)})
        )
        for name in workload.layers
    ]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()


# -- the ways ----------------------------------------------------------------------------------------------------------


def bare(workload: Workload, folder: Path) -> None:
    """The forward loop and nothing else."""
    with torch.no_grad():
        for batch in workload.batches():
            workload.model(batch)
    if workload.device == "cuda":
        torch.cuda.synchronize()


def raw(workload: Workload, folder: Path) -> None:
    """The same bytes, by as many threads, a file for each."""
    block, per_thread = os.urandom(1 << 20) * (BLOCK_BYTES >> 20), workload.total_bytes() // WRITERS

    def write(number: int) -> None:
        with open(folder / str(number), "wb", buffering=0) as file:
            for start in range(0, per_thread, BLOCK_BYTES):
                file.write(memoryview(block)[: min(BLOCK_BYTES, per_thread - start)])
            os.fsync(file.fileno())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ours(workload: Workload, folder: Path, **options: Any) -> Any:
    """tl.extract: checksums, shards, resumable."""
    layers = dict.fromkeys(workload.layers, first_tensor)
    return tl.extract(
        workload.model, workload.data, layers=layers, to=folder / "x", batch_size=workload.batch_size, progress=False,
        **options,
    )  # fmt: skip


def ours_short(workload: Workload, folder: Path) -> None:
    """What does not depend on the length, nearly."""
    ours(workload.first_batches(2), folder)


def ours_with_top(workload: Workload, folder: Path) -> None:
    """The same, and the strongest samples of each unit of every layer."""
    ours(workload, folder, top=True)


def by_hooks(save: Callable[[dict[str, torch.Tensor], Path], Any]) -> Callable[[Workload, Path], None]:
    """Forward hooks, and a file for each batch."""

    def run(workload: Workload, folder: Path) -> None:
        with torch.no_grad(), hooked(workload) as kept:
            for number, batch in enumerate(workload.batches()):
                workload.model(batch)
                save({name: value.cpu() for name, value in kept.items()}, folder / f"{number}.file")
        sync(folder)

    return run


def by_safetensors(values: dict[str, torch.Tensor], file: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.contiguous() for name, value in values.items()}, file)


def by_memmap(workload: Workload, folder: Path) -> None:
    """Forward hooks, and one numpy memmap for each layer; bfloat16 as its bits."""
    maps = {}
    for name, (shape, kind) in workload.sizes.items():
        stored = "uint16" if kind is torch.bfloat16 else str(kind).removeprefix("torch.")
        maps[name] = np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=stored, shape=(len(workload.data), *shape)
        )
    with torch.no_grad(), hooked(workload) as kept:
        start = 0
        for batch in workload.batches():
            workload.model(batch)
            for name, value in kept.items():
                value = value.cpu()
                bits = value.view(torch.uint16) if value.dtype is torch.bfloat16 else value
                maps[name][start : start + len(bits)] = bits.numpy()
            start += len(batch)
    for array in maps.values():
        array.flush()


def sync(folder: Path) -> None:
    for file in folder.iterdir():
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())


WAYS: dict[str, Callable[[Workload, Path], None]] = {
    "bare loop": bare,
    f"raw bytes, {WRITERS} threads": raw,
    "tl.extract": ours,
    "tl.extract, top=True": ours_with_top,
    "tl.extract, 2 batches": ours_short,
    "hooks + torch.save": by_hooks(torch.save),
    "hooks + safetensors": by_hooks(by_safetensors),
    "hooks + numpy memmap": by_memmap,
}


@dataclass(frozen=True)
class Cost:
    """What a way took."""

    secs: float
    cpu_secs: float  # of all threads
    host_bytes: int  # resident at most, more than before
    gpu_bytes: int  # allocated at most, more than before

    def memory(self) -> str:
        gpu = f" + {self.gpu_bytes / 1e9:.2f} on the GPU" if torch.cuda.is_available() else ""
        return f"{self.host_bytes / 1e9:.2f} GB{gpu}"


def resident(field: str) -> int:
    """VmRSS, or VmHWM: the most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what a way before has left would hide what this one takes
    Path("/proc/self/clear_refs").write_text("5")
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()


def cost_of(run: Callable[[], Any]) -> Cost:
    forget_peak()
    host, gpu = resident("VmRSS"), torch.cuda.memory_allocated()
    start, cpu_start = time.perf_counter(), time.process_time()
    run()
    secs, cpu_secs = time.perf_counter() - start, time.process_time() - cpu_start
    return Cost(secs, cpu_secs, max(0, resident("VmHWM") - host), torch.cuda.max_memory_allocated() - gpu)


def timed(way: Callable[[Workload, Path], None], workload: Workload, place: Path) -> Cost:
    folder = Path(tempfile.mkdtemp(dir=place))
    try:
        return cost_of(lambda: way(workload, folder))
    finally:
        shutil.rmtree(folder)


def measure(workload: Workload, place: Path, rounds: int, peer_rounds: int) -> list[dict[str, Cost]]:
    """The cost of each way, once for each round; of the peers in the first ones only."""
    needed, free = workload.total_bytes() * 1.1, shutil.disk_usage(place).free
    if free < needed:
        sys.exit(f"{needed / 1e9:.1f} GB are needed in {place}, and {free / 1e9:.1f} GB are free")
    measured = []
    for number in range(rounds):
        ways = WAYS if number < peer_rounds else {name: WAYS[name] for name in WAYS if not name.startswith("hooks")}
        measured.append({name: timed(way, workload, place) for name, way in ways.items()})
        text = ", ".join(f"{name} {cost.secs:.2f} s" for name, cost in measured[-1].items())
        print(f"{workload.name}, {place}, round {number + 1}: {text}", file=sys.stderr, flush=True)
    return measured


def rows(workload: Workload, where: str, place: Path, rounds: int, peer_rounds: int) -> list[list[str]]:
    """The table's rows of one model on one disk."""
    measured, made_rows = measure(workload, place, rounds, peer_rounds), []
    bare_name, raw_name = list(WAYS)[:2]
    for name in WAYS:
        costs = [costs for costs in measured if name in costs]
        limits = [max(costs[bare_name].secs, costs[raw_name].secs) for costs in costs]
        of_limit = statistics.median(own[name].secs / limit for own, limit in zip(costs, limits))
        of_bare = statistics.median(own[name].secs / own[bare_name].secs for own in costs)
        met = "" if name != "tl.extract" else f"≤{FLOOR} {'floor met' if of_limit <= FLOOR else 'FLOOR MISSED'}"
        title = f"{workload.name}, {workload.total_bytes() / 1e9:.1f} GB, {where}"
        made_rows.append(
            [title, name, *cost_texts([own[name] for own in costs]), f"{of_bare:.2f}x", f"{of_limit:.2f}x", met]
        )
    return made_rows


def cost_texts(costs: list[Cost]) -> list[str]:
    """Seconds, the processors', and memory: of the cost in the middle."""
    middle = sorted(costs, key=lambda cost: cost.secs)[len(costs) // 2]
    return [f"{middle.secs:.2f}", f"{middle.cpu_secs:.2f}", middle.memory()]


# -- reading -----------------------------------------------------------------------------------------------------------


def reading_rows(workload: Workload, place: Path, rounds: int) -> list[list[str]]:
    """A shuffled epoch, beside plain reads of the same files by as many threads: from the disk, and from memory."""
    folder = Path(tempfile.mkdtemp(dir=place))
    made_rows: list[list[str]] = []
    try:
        stored = ours(workload, folder, writers=WRITERS)
        files = [shard.folder / "000000.data" for shard in stored.shards]
        size = sum(file.stat().st_size for file in files) / 1e9
        for source, prepare in {"disk": forget, "page cache": read_plainly}.items():
            costs = read_both(stored.path, files, prepare, rounds)
            share = statistics.median(plain.secs / shuffled.secs for plain, shuffled in zip(*costs.values()))
            met = f"≥{READ_FLOOR} {'floor met' if share >= READ_FLOOR else 'FLOOR MISSED'}" if source == "disk" else ""
            title = f"{workload.name}, {size:.1f} GB read from the {source}"
            texts = (("1.00x its speed", ""), (f"{share:.2f}x its speed", met))
            for (name, own), (text, floor) in zip(costs.items(), texts):
                made_rows.append([title, name, *cost_texts(own), "", text, floor])
                print(*made_rows[-1], file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    return made_rows


def read_both(
    path: Path, files: list[Path], prepare: Callable[[list[Path]], None], rounds: int
) -> dict[str, list[Cost]]:
    """The cost of plain and of shuffled reading, which opens the store and verifies it, once for each round."""
    costs: dict[str, list[Cost]] = {f"plain reads, {WRITERS} threads": [], "features.stream, shuffled": []}
    for _ in range(rounds):
        for name, read in zip(costs, (lambda: read_plainly(files), lambda: read_shuffled(path))):
            prepare(files)
            costs[name].append(cost_of(read))
    return costs


def forget(files: list[Path]) -> None:
    """Let the system forget the files' contents, which it keeps in memory."""
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_plainly(files: list[Path]) -> None:
    def read(own: list[Path]) -> None:
        memory = bytearray(4 << 20)
        for path in own:
            with open(path, "rb", buffering=0) as file:
                while file.readinto(memory):
                    pass

    threads = [threading.Thread(target=read, args=(files[number::WRITERS],)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_shuffled(path: Path) -> None:
    for _ in open_extraction(path).stream(batch_size=4096, rows="tokens"):
        pass


# -- TorchLens ---------------------------------------------------------------------------------------------------------


def torchlens(workload: Workload, folder: Path) -> None:
    """TorchLens's trace of each batch, its values of the four layers saved with torch.save."""
    import torchlens

    for number, batch in enumerate(workload.batches()):
        with torch.no_grad():
            history = torchlens.trace(workload.model, batch)
        torch.save([history[name].out for name in workload.layers], folder / f"{number}.pt")


def alone() -> None:
    """TorchLens in a process of its own."""
    workload, place = resnet("cpu", TORCHLENS_IMAGES), Path(tempfile.gettempdir())
    base = timed(bare, workload, place)
    print(json.dumps(timed(torchlens, workload, place).secs / base.secs))


def torchlens_row() -> list[str]:
    title, name = f"ResNet-18, {TORCHLENS_IMAGES} images, disk", "TorchLens trace + torch.save"
    if not importlib.util.find_spec("torchlens"):
        return [title, name, "", "", "", "not installed", "", "`make setup-peers`"]
    done = subprocess.run([sys.executable, __file__, "--alone"], capture_output=True, text=True)
    text = f"{float(done.stdout):.1f}x" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:60]
    return [title, name, "", "", "", text, "", ""]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-rounds", type=int, default=0, help="in how many of the rounds, in place of all")
    parser.add_argument("--samples", type=int, default=0, help="how many, in place of the default of each model")
    parser.add_argument("--only", default="", choices=["", "residual", "resnet"], help="one of the two models")
    parser.add_argument("--reading", action="store_true", help="only the shuffled reading of the residual streams")
    parser.add_argument("--disk", default=tempfile.gettempdir(), help="a folder on the disk")
    parser.add_argument("--write", default="", help="put the table into this file")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.alone:
        alone()
        return
    places = {"RAM disk": RAM_DISK, "disk": Path(chosen.disk)}
    made_rows: list[list[str]] = []
    for key, make in {"residual": residual_streams, "resnet": resnet}.items():
        if chosen.only in ("", key) and (key == "residual" or not chosen.reading):
            workload = make(chosen.device, chosen.samples)
            for where, place in places.items() if not chosen.reading else ():
                made_rows += rows(workload, where, place, chosen.rounds, chosen.peer_rounds or chosen.rounds)
            if key == "residual":
                made_rows += reading_rows(workload, places["disk"], chosen.rounds)
            del workload
    if chosen.device == "cpu" and not chosen.only:
        made_rows.append(torchlens_row())
    header = ["four layers kept", "way", "seconds", "cpu", "memory", "of the bare loop", "of the limit", "floor"]
    gpu = f", {torch.cuda.get_device_name()}" if chosen.device == "cuda" else ""
    isal = "with isal" if has_fast_crc32() else "without isal"
    facts = f"{processor()}, {os.cpu_count()} cores{gpu}, torch {torch.__version__}, {isal}."
    text = f"{table(header, made_rows)}\n\nMedians of {chosen.rounds} rounds. {facts}"
    print(text)
    if chosen.write:
        write_section(Path(chosen.write), "extraction", text)


if __name__ == "__main__":
    main()

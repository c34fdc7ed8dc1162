"""The rules of the house: who imports whom, what an import costs, what may stand in a file."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from document_blocks import FIRST_PAGES, run_page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "torcheer"

# What each room may import besides the standard library, and what every room may import.
COMMON = {
    "records",
    "samples",
    "encoding",
    "vocabulary",
    "safetensors_header",
    "errors",
    "terminal",
    "disk",
    "public_names",
    "ranks",
    "numpy",
}
ROOMS = {
    "records": set(),
    "errors": set(),
    "vocabulary": set(),
    "encoding": set(),
    "safetensors_header": set(),
    "samples": set(),
    "terminal": set(),
    "disk": {"ranks"},
    "remote": {"wire"},
    "ranks": set(),
    "public_names": {"(computed)"},  # it imports what a package's table names
    "data_workers": {"wire"},
    "ray_cluster": set(),
    "inputs": set(),
    "roles": set(),
    "selection": {"roles"},
    "models": {"torch"},
    "history": {"selection", "roles"},
    "tap": {"torch", "selection", "models"},
    "capture": {"torch", "history", "tap", "inputs", "selection", "roles", "models"},
    "autograd": {"torch", "capture", "history"},
    "network": {"history", "wire"},
    "drawing": {"history", "network", "selection"},
    "archive": {"history", "selection", "remote", "wire"},
    "foreign": {"wire", "(computed)"},  # readers are looked up by name: for a person here, for pages in a process apart
    "modelfiles": {"history", "foreign"},
    "path_reader": {"archive", "extraction", "history", "modelfiles", "remote", "runlog"},
    "runlog": {"archive", "history", "network", "selection"},
    "wire": set(),
    "video": {"selection"},
    "monitor": {"torch", "selection", "models", "tap", "wire", "runlog", "video", "history"},
    "inspector": {"torch", "selection", "models", "tap", "wire", "runlog", "video", "monitor"},
    "config": {"(computed)"},  # it imports what a config names, if it may
    "control": {"wire", "runlog", "network"},  # the last: what a loop says begins with its network
    "extraction": {"torch", "selection", "roles", "models", "capture", "tap", "archive", "history", "config",
                   "data_workers", "inputs", "wire", "remote", "ray_cluster",
                   "runlog"},  # the last: PNG files, for a gallery
    "memory": {"torch", "models", "inputs", "tap", "capture", "training", "config"},  # the last two: plan CONFIG
    "host": {"torch", "selection", "inputs", "models", "capture", "network", "tap", "wire", "control", "runlog",
             "history"},
    "training": {"torch", "selection", "models", "capture", "tap", "monitor", "runlog", "control", "network",
                 "archive", "history", "config", "data_workers", "remote", "ray_cluster", "modelfiles",
                 "host", "wire"},  # the last two: a session is shown as a live loop is
    "studio": {"history", "network", "drawing", "archive", "runlog", "wire", "control", "modelfiles", "foreign"},
    "mcp_server": {"__init__", "path_reader", "archive", "history", "runlog", "studio", "modelfiles", "foreign"},
    "etorch": {"torch", "host", "control", "tap", "network", "runlog", "wire", "archive"},
    "interpret": {"torch", "selection", "roles", "models", "inputs", "capture", "history", "network", "drawing"},
    "demo": {"torch", "drawing", "training", "config", "runlog"},
    "integrations": {"torch", "capture", "history", "host", "monitor", "network", "runlog", "tap", "training", "wire",
                     "studio"},  # the last: the name and the tags of a run
    "commands": {"cli", "drawing", "path_reader", "training", "config", "torch"},
    "cli": {"__init__", "commands", "(computed)"},  # it looks its commands up in a table
}  # fmt: skip
ROOMS |= {"__main__": {"cli"}, "__init__": set(ROOMS)}
# Packages of an extra, never loaded before the function that needs them is called.
LATE = {
    "interpret": {"pandas"},
    "tap": {"triton"},
    "terminal": {"rich"},
    "remote": {"fsspec"},
    "history": {"pandas", "pyarrow", "rich"},
    "foreign": {"PIL", "yaml"},  # pictures and settings in others' logs
    "runlog": {"pandas", "pyarrow", "torch"},
    "monitor": {"cloudpickle"},
    "video": {"PIL", "av"},
    "wire": {"IPython"},
    "drawing": {"reportlab", "resvg_py"},
    "archive": {"pyarrow", "safetensors", "zarr", "zstandard"},
    "encoding": {"isal", "ml_dtypes"},
    "etorch": {"safetensors"},
    "config": {"yaml"},
    "mcp_server": {"mcp", "uvicorn", "anyio"},
    "extraction": {"cloudpickle", "ray", "safetensors"},
    "training": {"PIL", "mlflow", "onnx", "ray", "rich", "tensorboard", "wandb"},
    "integrations": {
        "PIL",
        "accelerate",
        "captum",
        "lightning",
        "matplotlib",
        "pandas",
        "pytorch_lightning",
        "transformers",
    },
    "studio": {"IPython", "h11", "pandas", "pyarrow", "starlette", "uvicorn", "websockets"},
}
# What type checkers alone import: a value of a history is a tensor to them.
FOR_TYPES = {
    "history": {"torch"}, "network": {"pandas"}, "drawing": {"torch", "modelfiles"}, "studio": {"torch"},
    "capture": {"originals"},
}  # fmt: skip
# Files that only a function imports: triton compiles functions of a module, with the module's globals.
LATE_FILES = {PACKAGE / "tap" / "reduction" / "triton_programs.py"}
# The map's only exceptions: one-line late imports of other rooms, and the names of eTorch that people import from here.
DOORS = {PACKAGE / "history" / "doors.py", PACKAGE / "studio" / "__init__.py"}

WITHOUT_TORCH = (
    "records", "samples", "vocabulary", "errors", "encoding", "safetensors_header", "terminal", "disk", "ranks",
    "config", "control", "history", "network", "drawing", "archive", "wire", "video", "studio", "foreign", "modelfiles",
)  # fmt: skip
VERBS = (
    "log_forward_pass", "recording", "validate", "draw", "show", "live", "watch", "extract", "load", "lens",
    "patch_sweep", "plan", "report",
)  # fmt: skip

FILES = sorted(PACKAGE.rglob("*.py"))


# The import map


def test_the_import_map_holds() -> None:
    assert [stray for file in FILES for stray in strays(file.read_text(), file)] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("history/find.py", "import torch"),
        ("history/find.py", "def find():\n    from torch import nn"),
        ("history/find.py", "if TYPE_CHECKING:\n    import torcheer.capture"),
        ("history/find.py", "if not TYPE_CHECKING:\n    import torch"),
        ("history/find.py", "import pandas"),
        ("history/find.py", "def find():\n    import torcheer.capture"),
        ("history/find.py", "from torcheer import capture"),
        ("history/find.py", "from .. import capture"),
        ("history/find.py", "from ..capture.recorder import Recorder"),
        ("history/find.py", "import torcheer"),
        ("history/find.py", "import_module('torcheer.capture')"),
        ("history/doors.py", "from torcheer.capture.proof import replay"),
        ("history/doors.py", "def validate():\n    import torch"),
        ("capture/modes.py", "from torcheer import log_forward_pass"),
        ("records.py", "from torcheer.history import ModelHistory"),
        ("cli.py", "from torcheer.capture.forward_pass import recording"),
        ("attic/box.py", "import torch"),
    ],
)
def test_the_import_map_refuses(file: str, source: str) -> None:
    assert list(strays(source, PACKAGE / file))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("history/find.py", "import numpy\nfrom . import trace\nfrom torcheer.records import Op\nimport json"),
        ("history/find.py", "def to_pandas():\n    import pandas"),
        ("history/find.py", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("history/doors.py", "def validate():\n    from torcheer.capture.proof import replay"),
        ("capture/modes.py", "import torch\nfrom ..history.model import ModelHistory\nfrom .trees import leaves"),
    ],
)
def test_the_import_map_allows(file: str, source: str) -> None:
    assert not list(strays(source, PACKAGE / file))


def strays(source: str, file: Path) -> Iterator[str]:
    """Say each import of `source` that its room may not make."""
    room = room_of(file)
    allowed = {room, *COMMON, *ROOMS.get(room, ())}
    for_types = set(lines_for_types(parsed(source)) if "TYPE_CHECKING" in source else ())
    for line, target, late in imports(parsed(source), file):
        also = LATE.get(room, set()) if late or file in LATE_FILES else set()
        if late and file in DOORS:
            also = set(ROOMS)
        if line in for_types:
            also = also | FOR_TYPES.get(room, set())
        if target not in sys.stdlib_module_names and target not in allowed | also:
            yield f"{file.relative_to(PACKAGE)}:{line}: {room} may not import {target}{' here' * (not late)}"


def lines_for_types(tree: ast.Module) -> Iterator[int]:
    """The lines of a file that only type checkers read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)


@functools.cache
def parsed(source: str) -> ast.Module:
    """A file's tree, which several rules go through."""
    return ast.parse(source)


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST, file: Path, late: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Every import below `node`: its line, the room or package, whether loading the file leaves it out."""
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    late = late or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    match node:
        case ast.Import(names=names):
            yield from ((node.lineno, target(name.name), late) for name in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            start = absolute(module or "", level, file)
            yield from ((node.lineno, target(f"{start}.{name.name}"), late) for name in names)
        case ast.Call(func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module")):
            first = node.args[0]
            name = first.value if isinstance(first, ast.Constant) else "(computed)"
            yield node.lineno, target(name), late
    for child in ast.iter_child_nodes(node):
        yield from imports(child, file, late)


def absolute(module: str, level: int, file: Path) -> str:
    """The dotted name that a `from` import starts at."""
    if not level:
        return module
    folders = ["torcheer", *file.relative_to(PACKAGE).parts[:-1]]
    return ".".join([*folders[: len(folders) - level + 1], *filter(None, [module])])


def target(name: str) -> str:
    """The room a dotted name leads to, `__init__` for a name of ours, or the package when it is not ours."""
    first, *rest = name.split(".")
    if first != "torcheer":
        return first
    return rest[0] if rest and rest[0] in ROOMS else "__init__"


PARSERS = "torcheer.foreign.readers"


def test_parsers_of_others_formats_are_imported_by_the_reading_process_and_for_a_person_who_loads_a_file() -> None:
    """The studio, the MCP server and reports read in a process that can be lost: they have no other way."""
    named = {str(file.relative_to(PACKAGE)) for file in FILES if PARSERS in file.read_text()}
    assert {name for name in named if not name.startswith("foreign/readers/")} == {
        "foreign/ask_readers.py", "foreign/reading_process.py",
    }  # fmt: skip
    here = {str(file.relative_to(PACKAGE)) for file in FILES if re.search(r"\bread_here\b", file.read_text())}
    assert here == {"foreign/ask_readers.py", "modelfiles/model_file.py"}
    loads = {room_of(file) for file in FILES if re.search(r"\bopen_model_file\b", file.read_text())}
    assert loads == {"modelfiles", "path_reader", "training"}


# What only some rooms do

PROCESSES = re.compile(r"\bfcntl\b|\bmemfd_create\b|\bAF_UNIX\b|\bsocketpair\b|\bPopen\(|\bregister_at_fork\b")
DURABLE = re.compile(r"\bos\.(replace|fsync)\b")
# Files that grow, and tensors that are streamed into a new folder, are fsynced by their owners.
OWNERS = {"archive/format/archive_folder.py", "training/checkpoints/checkpoint_files.py"}


def test_only_wire_and_disk_use_locks_descriptors_sockets_and_processes_of_the_system() -> None:
    files = {str(file.relative_to(PACKAGE)) for file in FILES if PROCESSES.search(file.read_text())}
    files -= {"foreign/readers/limits.py"}  # which names the calls of the system that are still allowed
    assert {name.partition("/")[0] for name in files} == {"wire", "disk.py"}


def test_only_disk_renames_over_files_and_fsyncs_them() -> None:
    files = {str(file.relative_to(PACKAGE)) for file in FILES if DURABLE.search(file.read_text())}
    assert files - OWNERS == {"disk.py"}


# Names and sizes of files

SAME_ROLE = {"__init__", "__main__", "cli"}  # one in each room, for the same purpose
MOST_FILES = 15  # of a folder


def unnamed_encodings(tree: ast.AST) -> Iterator[int]:
    """Lines that open a text file without an encoding: Windows would take its code page."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        name = ast.unparse(node.func)
        given = len(node.args)
        mode = ast.unparse(node.args[1]) if name == "open" and given > 1 else ""
        if (name.endswith(".read_text") and not given) or (name.endswith(".write_text") and given < 2):
            yield node.lineno
        elif name == "open" and "b" not in mode:
            yield node.lineno


def test_text_files_are_utf_8_on_every_system() -> None:
    found = {str(file): list(unnamed_encodings(ast.parse(file.read_text()))) for file in FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize("source", ["open(path)", "open(path, 'w')", "path.read_text()", "path.write_text(text)"])
def test_a_text_file_without_an_encoding_is_noticed(source: str) -> None:
    assert list(unnamed_encodings(ast.parse(source))) == [1]


def test_no_file_name_stands_twice() -> None:
    stems = Counter(file.stem for file in FILES if file.stem not in SAME_ROLE)
    assert [stem for stem, count in stems.items() if count > 1] == []


def test_no_file_is_called_like_a_module_of_the_standard_library() -> None:
    assert [file.stem for file in FILES if file.stem in sys.stdlib_module_names] == []


def test_a_folder_has_no_more_files_than_can_be_taken_in() -> None:
    folders = Counter(file.parent for file in FILES if file.stem not in ("__init__", "__main__"))
    assert {str(folder.relative_to(PACKAGE)): count for folder, count in folders.items() if count > MOST_FILES} == {}


def test_no_private_name_is_imported_from_another_file() -> None:
    private = [
        f"{file.relative_to(PACKAGE)}: {name.name}"
        for file in FILES
        for node in ast.walk(parsed(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torcheer")
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert private == []


def test_no_public_name_of_a_package_is_hidden_by_a_file_of_it() -> None:
    """Importing `a.b` sets the name `b` of `a`, whatever it was before."""
    assert [(str(file.parent.name), name) for file in FILES if file.stem == "__init__" for name in hidden(file)] == []


# Torch's private names

# Capture's files import these two themselves: they are base class and module of what they do.
OPEN_NAMES = {"torch.utils._pytree", "torch.utils._python_dispatch.TorchDispatchMode"}
# Rooms below capture, which cannot import it, and kernels that only one room calls.
ELSEWHERE = {
    "torch._C.DisableTorchFunction": {"archive", "encoding", "etorch", "history", "inspector", "tap"},
    "torch._C._is_tracing": {"inspector", "tap"},
    "torch._C._current_graph_task_id": {"tap"},
    "torch._C._functorch.is_functorch_wrapped_tensor": {"tap"},
    "torch._C._disabled_torch_dispatch_impl": {"tap"},
    "torch._C._cuda_getCurrentRawStream": {"tap"},
    "torch.nn.Module._call_impl": {"capture", "tap"},  # its code, to know a module call among the frames
    "torch.Tensor._make_subclass": {"autograd"},
    "torch._C._storage_Use_Count": {"extraction"},
    "torch._C._nn": {"autograd"},  # the pooling and resampling kernels that rules call
    "torch._C._distributed_c10d._dump_fr_trace_json": {"training"},  # of a rank that hangs
    "torch._foreach_copy_": {"tap"},
    "torch._foreach_norm": {"tap"},
    "torch._foreach_sub": {"tap"},
    "torch._foreach_div_": {"training"},
    "torch._foreach_lerp_": {"training"},
    "torch._make_per_tensor_quantized_tensor": {"archive"},
    "torch._make_per_channel_quantized_tensor": {"archive"},
    "torch.utils._pytree": {"training"},
    "torch.utils._python_dispatch.TorchDispatchMode": {"memory", "tap"},  # memory counts storages; tap sees collectives
}
TORCH_STATE = [PACKAGE / "capture" / name for name in ("torch_state.py", "torch_probes.py")]


def test_only_one_file_reads_torchs_private_names() -> None:
    allowed = ELSEWHERE | {name: {"capture", *ELSEWHERE.get(name, ())} for name in OPEN_NAMES}
    reads = [(name, room_of(file), file) for file in FILES if file not in TORCH_STATE for name in private_reads(file)]
    assert [(name, str(file)) for name, room, file in reads if room not in allowed.get(name, ())] == []
    assert {(name, room) for name, room, _ in reads} == {(name, room) for name in allowed for room in allowed[name]}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch\ntorch._C._nn.pad(torch._foreach_add)", ["torch._C._nn", "torch._foreach_add"]),
        ("from torch.overrides import _get_modes, wrap", ["torch.overrides._get_modes"]),
        ("from torch.autograd import forward_ad\nforward_ad._level", ["torch.autograd.forward_ad._level"]),
        ("def f():\n    from torch._dynamo.utils import counters", ["torch._dynamo.utils.counters"]),
        ("import torch.nn as nn\nnn.Module.__init__\ntorch.nn", []),
        ("import torch\ntorch.Tensor.backward = f", ["torch.Tensor.backward ="]),
        ("from torch import Tensor\nsetattr(Tensor, 'backward', f)", ["setattr torch.Tensor"]),
    ],
)
def test_a_private_name_of_torch_is_noticed(source: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(source)
    assert sorted(private_reads(tmp_path / "file.py")) == sorted(names)


def private_reads(file: Path) -> Iterator[str]:
    """The private names of torch in a file, and the attributes of torch that it replaces."""
    text = file.read_text()
    nodes = list(ast.walk(parsed(text))) if re.search(r"\btorch\b", text) else []
    homes = {"torch": "torch"}  # rooms that do not import it look it up in sys.modules
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            yield from (name for name in names.values() if "._" in name)
            homes |= names
        elif isinstance(node, ast.Import):
            torchs = [alias for alias in node.names if alias.name.split(".")[0] == "torch"]
            homes |= {alias.asname or "torch": alias.name if alias.asname else "torch" for alias in torchs}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        match node:
            case ast.Attribute(ctx=ast.Store()) if (name := dotted(node, homes)) is not None:
                yield f"{name} ="
            case ast.Attribute() if id(node) not in inner and re.search(r"\._(?!_)", name := dotted(node, homes) or ""):
                yield re.sub(r"(_C\._nn|_pytree|_call_impl)\..*", r"\1", name)
            case ast.Call(func=ast.Name(id="setattr"), args=[owner, *_]) if (name := dotted(owner, homes)) is not None:
                yield f"setattr {name}"


def dotted(node: ast.AST, homes: dict[str, str]) -> str | None:
    """`torch.nn.functional.pad`, however it was imported; None for what does not begin at torch."""
    if isinstance(node, ast.Name):
        return homes.get(node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, homes)
        return None if before is None else f"{before}.{node.attr}"
    return None


def test_capture_reads_no_private_attribute_of_a_tensor_or_module_that_has_no_probe() -> None:
    """A call around each would cost more than the read: they stand in a table instead."""
    import torch
    from seams import ATTRIBUTES

    operation, storage = torch.ops.aten.relu.default, torch.ones(1).untyped_storage()
    objects = torch.ones(1), torch.nn.Module(), operation, storage
    theirs = {name for thing in objects for name in dir(thing) if name.startswith("_") and not name.startswith("__")}
    read = {
        node.attr
        for file in FILES
        if room_of(file) == "capture" and file not in TORCH_STATE
        for node in ast.walk(parsed(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in theirs and ast.unparse(node.value) not in ("self", "cls")
    }
    assert read == {name.split(".")[1] for name in ATTRIBUTES}


def hidden(package: Path) -> Iterator[str]:
    """The names in `__all__` that a file or folder beside it has too, and that are not that very module."""
    beside = {path.stem for path in package.parent.iterdir() if path.suffix == ".py" or path.is_dir()}
    tree = parsed(package.read_text())
    public = {
        constant.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant)
    }
    modules = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module_name(package)
        for alias in node.names
    }
    yield from sorted((public & beside) - modules)


# What importing does


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """What a fresh interpreter that has torch says before and after it imports torcheer, and loads for a capture."""
    facts: dict[str, Any] = json.loads(
        answer("""
        import json, sys, threading, types, numpy, torch
        from pathlib import Path
        places = torch, torch.Tensor, torch.nn.Module, torch.nn.functional, torch.functional, torch.overrides
        def names():
            return {
                (place.__name__, name): thing
                for place in places
                for name, thing in vars(place).items()
                if not isinstance(thing, types.ModuleType)  # a submodule may be loaded
            }
        def running():
            tasks = list(Path("/proc/self/task").glob("*"))
            return threading.active_count(), len(tasks), [(task / "children").read_text() for task in tasks]
        modules, before, ran = set(sys.modules), names(), running()
        import torcheer as tl
        verbs = [getattr(tl, name) for name in tl.__all__]
        after, runs = names(), running()
        patched = [key for key in before | after if before.get(key, names) is not after.get(key, names)]
        tl.log_forward_pass(torch.nn.Linear(2, 2), torch.ones(1, 2))
        loaded = sorted(set(sys.modules) - modules)
        print(json.dumps({"patched": patched, "ran": ran, "runs": runs, "loaded": loaded}))
    """)
    )
    return facts


def test_importing_and_capturing_load_nothing_but_torch_and_numpy(imported: dict[str, Any]) -> None:
    loaded, ours = imported["loaded"], {"torcheer", "torch", "numpy", *sys.stdlib_module_names}
    assert "torcheer" in loaded
    assert [name for name in loaded if name.split(".")[0] not in ours] == []
    assert [name for name in loaded if name.startswith(("torch._dynamo", "torch._inductor", "torch.onnx"))] == []
    assert [name for name in loaded if name.startswith("torcheer.etorch")] == []


def test_importing_starts_no_thread_and_no_process(imported: dict[str, Any]) -> None:
    assert imported["ran"] == imported["runs"] and imported["ran"][0] == 1


def test_importing_patches_nothing_in_torch(imported: dict[str, Any]) -> None:
    assert imported["patched"] == []


@pytest.mark.timing
def test_importing_adds_60_ms_to_the_second_that_torch_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # the first run compiles, the others import
    code = """
        import gc, time, numpy
        begin = time.process_time()
        import torch
        torch_secs = time.process_time() - begin
        gc.collect()  # or a collection of all that torch made may fall due in between
        start = time.process_time()
        import torcheer as tl
        verbs = [getattr(tl, name) for name in tl.__all__ if tl._HOMES.get(name) != f"torcheer.{name}"]
        print((time.process_time() - start) / torch_secs)
    """
    assert any(float(answer(code)) < 0.06 for _ in range(5))


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_a_room_for_readers_imports_without_torch(room: str) -> None:
    modules = [module_name(file) for file in FILES if room_of(file) == room]
    assert modules
    assert answer(f"import sys, {', '.join(modules)}; print('torch' in sys.modules)") == "False"


def test_no_room_shadows_a_verb() -> None:
    """Each verb is called after every module was imported, with an option that only it can refuse."""
    refused = answer(f"""
        import {", ".join(module_name(file) for file in FILES if file not in LATE_FILES)}
        import torch, torcheer as tl
        for verb in {VERBS}:
            try:
                getattr(tl, verb)(*[torch.nn.ReLU()] * (verb == "log_forward_pass"), no_such_option=1)
            except tl.errors.UnknownOption as error:
                print(str(error).split()[0])
    """)
    assert refused.split() == list(VERBS)
    assert set(VERBS).isdisjoint(ROOMS)


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def answer(code: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# What stands in the files

# Spelled in halves, or this file would name them itself.
MACHINE_PATH = re.compile(r"(?<![\w.~$})])/(?:" + "|".join(("work", "root", "home", "Users", "opt")) + r")(?![\w-])")
REGISTRY = re.compile("|".join(("py" + "pi.org", "python" + "hosted", "npm" + "js.org", "download.py" + "torch")))


def test_no_file_names_a_machine_path_or_a_registry() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert ROOT / "Makefile" in files
    assert [found for file in files if file.is_file() for found in local_lines(file)] == []


@pytest.mark.parametrize("text", ["cd /" + "work/main", "'/" + "root'", "https://py" + "pi.org/simple"])
def test_a_machine_path_or_a_registry_is_noticed(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    assert list(local_lines(tmp_path / "file"))


def local_lines(file: Path) -> Iterator[str]:
    """Say each line that only makes sense on one machine."""
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        if MACHINE_PATH.search(line) or REGISTRY.search(line):
            yield f"{file}:{number}: {line.strip()}"


README = (ROOT / "README.md").read_text()


PAGES = [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if "```python" in page.read_text()]
# Pages whose blocks need other packages run with those, `make test-integrations`; pages that take many seconds with the
# slow tests: the README runs a little of each.
MARKS = {"integrations": pytest.mark.integrations} | dict.fromkeys(("memory", "studio", "watching"), pytest.mark.slow)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name, marks=MARKS.get(page.stem, ())) for page in PAGES])
def test_the_python_in_the_documents_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The pages that people copy from first, twice: the second run finds the files of the first."""
    monkeypatch.chdir(tmp_path)
    if page.stem == "integrations":
        request.getfixturevalue("torchvision_without_its_compiled_half")
    for _ in range(2 if page in FIRST_PAGES else 1):
        run_page(page)


def test_the_makefile_has_every_target_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_tables_of_the_documents_begin_a_paragraph_and_have_equally_many_cells_in_each_row() -> None:
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for table in re.finditer(r"(?:^\|.*\n?)+", text, re.MULTILINE):
            before = text[: table.start()].rstrip("\n").rpartition("\n")[2]
            is_alone = text[: table.start()].endswith("\n\n") or before.startswith("<!--")
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.group().splitlines()}
            if not is_alone or len(cells) > 1:
                broken.append(f"{page.relative_to(ROOT)}: {table.group()[:60]!r}")
    assert broken == []


def test_every_link_in_the_readme_and_the_docs_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_property_tests_draw_the_same_examples_every_time() -> None:
    """`make fuzz` alone draws fresh ones."""
    from hypothesis import settings

    ours = settings.get_profile("torcheer")
    assert ours.derandomize and ours.database is None and ours.deadline is None
    assert not settings.get_profile("fuzz").derandomize
    tests = [file.read_text() for file in (ROOT / "tests").glob("test_*.py") if file.name != Path(__file__).name]
    assert not [text for text in tests if "derandomize" in text or "load_profile" in text]


@pytest.mark.parametrize("attempt", range(2))
def test_each_test_begins_with_the_same_random_numbers(attempt: int) -> None:
    import random

    import numpy as np
    import torch

    drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
    assert _DRAWN.setdefault("first", drawn) == drawn


_DRAWN: dict[str, tuple[float, ...]] = {}

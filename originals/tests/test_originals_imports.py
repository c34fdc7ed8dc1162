"""What torcheer-originals is built on: names of the API reference, and the modules beneath them that stand here."""

from __future__ import annotations

import ast
from pathlib import Path

import torcheer

PACKAGE = Path(__file__).parents[1] / "src" / "torcheer_originals"
CONFIGS = "adapters collators datasets metrics output_devices preprocessors stop_conditions"  # name these modules
PUBLIC = {
    "torcheer", "torcheer.history", *(f"torcheer.{name}" for name in torcheer.__all__),
    *(f"torcheer.training.{name}" for name in CONFIGS.split()),
}  # fmt: skip
CORE = Path(torcheer.__file__).parent
# Modules beneath, by what needs them. The list may become shorter, and not longer.
BENEATH = {
    "hooks": "history.doors terminal.notices",
    "texts and lazy names": "public_names terminal",
    "TorchLens's labels and attributes": "records selection",
    "PyTorch Inspector's queues and keys": "inspector.handler_child inspector.layer_discovery",
    "PyTorch Inspector's plots": "video video.array_display video.array_frames video.frame_layout video.frame_plots "
    "video.value_range",
    "eTorch's network": "etorch etorch.etorch_network",
    "eTorch's tables": "disk runlog runlog.table_records runlog.tables.table_csv",
    "eTorch's window": "control.control_records control.loop_control control.parameter_form host.host wire.open_viewer",
}


def imported(package: Path) -> set[str]:
    """Every module that a file of a package imports."""
    found = set[str]()
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
    return found


def test_torcheer_imports_nothing_of_it() -> None:
    assert not [name for name in imported(CORE) if name.startswith("torcheer_originals")]


def test_only_the_listed_modules_beneath_the_public_names_are_imported() -> None:
    ours = {name for name in imported(PACKAGE) if name.partition(".")[0] == "torcheer"}
    assert ours - PUBLIC == {f"torcheer.{name}" for names in BENEATH.values() for name in names.split()}

"""Open a history, a model with inputs, a network, a table or a path in the studio; or two side by side."""

from __future__ import annotations

import os
import re
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from torcheer.errors import BadArgument, TorcheerError
from torcheer.history import ModelHistory
from torcheer.history.compare import Comparison
from torcheer.host.host import Host
from torcheer.network.heads.token_names import TokenNames, check_token_names, write_token_names
from torcheer.ranks import Ranks, acts, rank_of
from torcheer.runlog.table import Table
from torcheer.wire.open_viewer import NoViewer, Viewer, in_notebook, start
from torcheer.wire.page_address import PageAddress, address_of
from torcheer.wire.temporary_folders import TemporaryFolder

_COMPARED = (ModelHistory, str, os.PathLike)


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The page that a verb opens, as its caller wants it, and which rank this is."""

    address: PageAddress
    browser: bool | None  # None: where there is a desktop
    title: str
    token_names: TokenNames
    rank: int
    is_shown: bool  # on this rank

    def title_of(self, name: str) -> str:
        """The title, or `name` where there is none; ranks other than 0 are named in it."""
        return f"{self.title or name} · rank {self.rank}" if self.rank else self.title or name


def page_settings(
    *, port: int, host: str | None, base_path: str, allowed_hosts: Sequence[str], browser: bool | None,
    title: str | None, token_names: Any, ranks: Ranks,
) -> PageSettings:  # fmt: skip
    """Check what `show` and `live` were asked for; rank n has the n-th port after the first."""
    rank, is_shown = rank_of()[0], acts(ranks)
    address = address_of(port + rank if port else 0, host, base_path, allowed_hosts)
    return PageSettings(address, browser, title or "", check_token_names(token_names), rank, is_shown)


def show_page(
    what: Any, inputs: Any, input_kwargs: Mapping[str, Any] | None, page: PageSettings, *, block: bool | None
) -> Viewer:
    """Open the studio on what `show` was given; all ranks run a model, which may need every one of them."""
    shown = _captured(what, inputs, input_kwargs)
    if not page.is_shown:
        return NoViewer()
    viewer = _open_viewer(shown, replace(page, title=page.title_of("pass" if page.rank else "")))
    if _should_block() if block is None else block:
        try:
            viewer.wait()
        except KeyboardInterrupt:
            pass
        finally:
            viewer.close()
    return viewer


def _captured(what: Any, inputs: Any, input_kwargs: Mapping[str, Any] | None) -> Any:
    """The history of a model that is run now, or two that are compared; all else as it is."""
    if isinstance(what, torch.nn.Module):
        if inputs is None and not input_kwargs:
            name = type(what).__name__
            raise BadArgument(f"show({name}): a model is shown as it runs, so give it inputs: show(model, x)")
        return capture_for_show(what, () if inputs is None else inputs, input_kwargs)
    if isinstance(what, Comparison) and inputs is None:
        return what.histories
    if isinstance(what, _COMPARED) and isinstance(inputs, _COMPARED):
        return what, inputs
    if inputs is not None or input_kwargs:
        raise BadArgument(f"show: inputs go with a model, and this is a {type(what).__name__}")
    return what


def _open_viewer(what: Any, page: PageSettings) -> Viewer:
    match what:
        case (ModelHistory() | str() | os.PathLike() as first, ModelHistory() | str() | os.PathLike() as second):
            return _show_two((first, second), page)
        case ModelHistory():
            return _show_history(what, page)
        case str() | os.PathLike():
            return _show_path(what, page)
    if page.token_names:
        raise BadArgument(f"show: token_names go with a model, a history or a path, not with a {type(what).__name__}")
    if isinstance(what, Table):
        return _show_table(what, page)
    if hasattr(what, "open_viewer"):  # eTorch's State and Network
        viewer: Viewer = what.open_viewer(page.address, browser=page.browser, title=page.title)
        return viewer
    raise BadArgument(
        f"show takes a history, a model with inputs, a Network, a Table, a path, or two histories or paths, "
        f"not {type(what).__name__}"
    )


def capture_for_show(
    model: torch.nn.Module, inputs: Any, input_kwargs: Mapping[str, Any] | None = None
) -> ModelHistory:
    """Capture one run of a model, with the gradients of its summed output.

    Parameters' `.grad` stay unchanged.
    """
    from torcheer.capture import log_forward_pass

    history = log_forward_pass(model, inputs, input_kwargs=input_kwargs, save_gradients=True)
    try:
        loss = history["output_1"].tensor_contents.sum()
        sources = [
            tensor for tensor in (*model.parameters(), *_tensors([inputs, input_kwargs])) if tensor.requires_grad
        ]
        if sources and loss.requires_grad:
            torch.autograd.grad(loss, sources, allow_unused=True)  # unlike backward, it writes to no .grad
    except (TorcheerError, RuntimeError, TypeError):
        pass  # a non-tensor output or no backward: shown without gradients
    return history


def _tensors(inputs: Any) -> list[torch.Tensor]:
    if isinstance(inputs, torch.Tensor):
        return [inputs] if inputs.is_floating_point() else []
    if isinstance(inputs, Mapping):
        inputs = list(inputs.values())
    return [tensor for part in inputs for tensor in _tensors(part)] if isinstance(inputs, tuple | list) else []


def _show_path(path: str | os.PathLike[str], page: PageSettings) -> Viewer:
    if not Path(path).exists():
        raise BadArgument(f"show: there is nothing at {os.fspath(path)}")
    if not page.token_names:
        return start(path, page.address, browser=page.browser, title=page.title)
    folder = TemporaryFolder("show")
    try:
        viewer = _start(path, page, folder, _name_options(page.token_names, folder))
    except BaseException:
        folder.remove()
        raise
    return _holding(viewer, folder)


def _name_options(names: TokenNames, folder: TemporaryFolder) -> list[str]:
    """The viewer's option; by a file, as all users can read the arguments of processes."""
    if not names:
        return []
    write_token_names(names, folder.path / "token_names.json")
    return [f"--token-names={folder.path / 'token_names.json'}"]


def _holding(viewer: Viewer, folder: TemporaryFolder) -> Viewer:
    """Leave a folder to its viewer, and remove it after it."""
    folder.close()  # the viewer holds it from here on
    viewer.closes.append(folder.remove)  # where it was killed
    weakref.finalize(viewer, folder.remove)
    return viewer


def _show_history(history: ModelHistory, page: PageSettings) -> Viewer:
    folder = TemporaryFolder("show")
    try:
        name = re.sub(r"[^\w.-]+", "-", page.title or history.model_name or "history").strip("-.") or "history"
        path = _saved(history, folder.path / name)
        viewer = _start(path, page, folder, _name_options(page.token_names, folder))
    except BaseException:
        folder.remove()
        raise
    return _holding(viewer, folder)


def _show_two(sides: tuple[Any, Any], page: PageSettings) -> Viewer:
    """Show two histories or paths side by side; histories are saved where the viewer finds them."""
    folder = TemporaryFolder("show")
    try:
        first, second = (
            _saved(side, folder.path / name) if isinstance(side, ModelHistory) else Path(side)
            for name, side in zip(("first", "second"), sides)
        )
        viewer = _start(first, page, folder, [str(second)])
    except BaseException:
        folder.remove()
        raise
    return _holding(viewer, folder)


def _start(
    path: Path | str | os.PathLike[str], page: PageSettings, folder: TemporaryFolder, options: list[str]
) -> Viewer:
    return start(path, page.address, browser=page.browser, title=page.title, folder=folder, options=options)


def _saved(history: ModelHistory, path: Path) -> Path:
    try:
        return Path(history.save(path, parameters=True))
    except TorcheerError:
        return Path(history.save(path))  # the model was garbage-collected, and its weights with it


def _show_table(table: Table, page: PageSettings) -> Viewer:
    host = Host(title=page.title or table.title)
    host.table(table.head())
    for row in table:
        host.row(table.name, row)
    assert host.path is not None
    try:
        viewer = start(host.path, page.address, browser=page.browser, folder=host.folder)
    except BaseException:
        host.close()
        raise
    viewer.closes.append(host.close)
    return viewer


def _should_block() -> bool:
    """True in a script on a terminal, outside CI."""
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive) or in_notebook()
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    return terminal and not interactive and not os.environ.get("CI")

"""The training process's side of the studio: the verbs `show` and `live`; publishes states, receives requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    from torcheer.disk import StrPath
    from torcheer.host.live_view import Live
    from torcheer.selection import Layers
    from torcheer.wire.open_viewer import Viewer


@names_options
def show(
    what: Any,
    inputs: Any = None,
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    port: int = 0,
    host: str | None = None,
    base_path: str = "",
    allowed_hosts: Sequence[str] = (),
    browser: bool | None = None,
    block: bool | None = None,
    title: str | None = None,
    token_names: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ranks: int | str | Sequence[int] = 0,
) -> Viewer:
    """Open a history, a model with inputs, a network, a table, a run directory or a recording in the studio, in 3D; or
    a loss recorded by `torcheer.autograd`: each step of its forward and backward pass, with its numbers.

    - `what`: a history; a model, which is run once with `inputs`; a loss, or the result of `autograd.explain(loss)`;
      eTorch's `State` or `Network`; a `Table`; a path; or the result of `history.compare(other)`, side by side.
    - `inputs`, `input_kwargs`: of a model, as for `log_forward_pass`. After a history or a path: another, to compare.
    - `port`: the server's port; 0 picks a free one. `host`: the address to listen on; None: loopback only.
    - `base_path`, `allowed_hosts`: behind a proxy, the path prefix and the proxy's host names.
    - `browser`: whether to open a browser; None: only on a desktop.
    - `block`: whether to wait for Ctrl-C; None: only in a script on a terminal, which would otherwise exit.
    - `title`: the page's title.
    - `token_names`: labels for rows and columns of attention heads: a list of names, or one list per batch item.
    - `ranks`: as for `watch`: which of several processes open a page (at `port`, `port + 1`, …).
    """
    from torcheer.history.doors import explained
    from torcheer.host.show_page import page_settings, show_page

    page = page_settings(
        port=port, host=host, base_path=base_path, allowed_hosts=allowed_hosts, browser=browser, title=title,
        token_names=token_names, ranks=ranks,
    )  # fmt: skip
    return show_page(explained(what), inputs, input_kwargs, page, block=block)


@names_options
def live(
    model: torch.nn.Module,
    layers: Layers | None = None,
    *,
    inputs: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | None = None,
    to: StrPath | None = None,
    port: int = 0,
    host: str | None = None,
    base_path: str = "",
    allowed_hosts: Sequence[str] = (),
    browser: bool | None = None,
    open_server: bool = True,
    title: str | None = None,
    token_names: Sequence[str] | Sequence[Sequence[str]] | None = None,
    step_of: Callable[[], int] | None = None,
    notify: Any = None,
    system_secs: float = 5.0,
    ranks: int | str | Sequence[int] = 0,
) -> Live:
    """Show a model in the studio while any loop trains it: `with tl.live(model) as view:` around the loop.

    - `model`: any module; it is not modified.
    - `layers`: layers whose values are recorded, as for `watch`; None: all. The others are drawn without values.
    - `inputs`, `input_kwargs`: run the model once with them, so that the page shows it before the first step.
    - `optimizer`: its settings can be changed from the page.
    - `to`: the run's folder, which `torcheer studio` opens; None: that of a `watch` of this model, or a temporary one.
    - `port`, `host`, `base_path`, `allowed_hosts`, `browser`, `title`, `token_names`: as for `show`.
    - `open_server`: False starts no server; a studio can attach later.
    - `step_of`: a function that returns the step number, for loops that count themselves.
    - `notify`, `system_secs`, `ranks`: as for `watch`; rank 1 has its own page and writes to `<to>@rank1`.
    """
    from torcheer.host.live_view import LiveSettings, open_live
    from torcheer.host.show_page import page_settings

    page = page_settings(
        port=port, host=host, base_path=base_path, allowed_hosts=allowed_hosts, browser=browser, title=title,
        token_names=token_names, ranks=ranks,
    )  # fmt: skip
    settings = LiveSettings(
        page=page, inputs=inputs, input_kwargs=input_kwargs, optimizer=optimizer, to=to, open_server=open_server,
        step_of=step_of, notify=notify, system_secs=system_secs,
    )  # fmt: skip
    return open_live(model, layers, settings)

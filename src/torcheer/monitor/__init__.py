"""The watch: a model's values in a child process, for statistics, rules, callbacks and video. The verb `watch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    from torcheer.disk import StrPath
    from torcheer.monitor.model_watch import Watch
    from torcheer.monitor.watch_settings import Transport
    from torcheer.samples import Alert
    from torcheer.selection import Layers
    from torcheer.tap.step_schedule import Every


@names_options
def watch(
    model: torch.nn.Module,
    layers: Layers | None = None,
    *,
    what: str | Sequence[str] = ("output", "grad", "weight", "update"),
    every: int | str | Every = 20,
    to: StrPath | None = None,
    optimizer: Optimizer | None = None,
    rules: Any = "default",
    video: Any = None,
    callback: Callable[..., Any] | None = None,
    keep: str | Sequence[str] = (),
    stop_on: str | Sequence[str] = (),
    on_alert: Callable[[Alert], Any] | None = None,
    step_of: Callable[[], int] | None = None,
    tell: Callable[[str], Any] | None = None,
    transport: Transport | Mapping[str, Any] | None = None,
    notify: Any = None,
    system_secs: float = 5.0,
    ranks: int | str | Sequence[int] = 0,
    log_bytes: float | None = None,
) -> Watch:
    """Monitor `layers` of a model on every n-th step of any training loop: `with tl.watch(model, to="run") as w:`.

    - `model`: any module, also compiled, or wrapped by DDP or FSDP.
    - `layers`: module paths, patterns ('features.*'), module classes, modules, roles ('attn[5]', as for
      `log_forward_pass`), predicates (lambda layer: layer.module_type == 'ReLU'); None and "all" for every module that
      computes.
    - `what`: any of "output", "grad", "weight", "weight_grad", "update".
    - `every`: a number of steps, or an `Every`.
    - `to`: the folder of the log; None: that of a `live` page of this model, or no log, only alerts.
    - `optimizer`: count its steps instead of forward passes; for models that are not called directly.
    - `rules`: which alerts are raised: "default" (all of the rules below), "none", names, or a dict of names and
      settings: {"dead_relu": False, "loss_spike": {"factor": 5.0}}.
    - `video`: True, patterns of keys, or a dict of settings: write a video of each key.
    - `callback`: called in the other process as `callback(layer, variable, step, array)`.
    - `keep`: patterns of keys ("features.*/output") whose whole arrays are stored.
    - `stop_on`: names of rules, "error" for the fatal ones (`nan_inf`), or "disk_full": an alert about a sampled step
      ends the `with` block before its next step. Rules that need a history are waited for, at most 1 s per step.
    - `on_alert`: called in this process with each alert. `tell`: called with each message instead of printing it.
    - `step_of`: as for `live`.
    - `transport`: size and policy of the shared memory: a `Transport`, or a dict of its fields.
    - `notify`: notify of alerts, a crash and the end: a URL (https://…), a command, or a dict with settings.
    - `system_secs`: interval of CPU, memory and GPU metrics in the log; 0: none.
    - `ranks`: with several processes (torchrun), which of them act: a rank, a list, or "all".
    - `log_bytes`: maximum size of the log: older samples are thinned out, except scalars of `log`, logged media,
      arrays of `keep`, and samples with alerts or NaN. None: no limit.

    | rule | raised when |
    |---|---|
    | `nan_inf` | a value has NaN or infinite numbers |
    | `exploding_gradient`, `vanishing_gradient` | a gradient is far larger than before; far smaller than others |
    | `dead_relu`, `saturation` | units of a ReLU are zero for all inputs; a tanh or sigmoid is at its bounds |
    | `all_zero`, `unchanged` | all numbers of a value are zero; a weight does not change |
    | `update_ratio` | an update is too large or too small for its weight |
    | `poor_initialisation` | weights begin alike, or signals grow or shrink from layer to layer |
    | `loss_spike`, `loss_plateau` | a logged loss jumps; stops falling |
    | `overfitting` | a held-out loss rises while the training loss falls |
    | `loss_scale` | the loss is multiplied by a factor far too large or too small |
    | `forgotten_zero_grad` | gradients of the step before are still there |
    | `activation_twice` | the loss applies a softmax or sigmoid to the result of one |
    | `frozen_layer` | a weight gets no gradient, though layers before and behind it do |
    | `stalled_loader` | steps wait for data longer than they compute |
    """
    from torcheer.monitor.model_watch import Watch, run_of_page
    from torcheer.monitor.watch_settings import WatchSettings

    settings = WatchSettings.parse(
        what=what, every=every, to=run_of_page(model) if to is None else to, optimizer=optimizer, rules=rules,
        video=video, callback=callback, keep=keep, stop_on=stop_on, on_alert=on_alert, step_of=step_of, tell=tell,
        transport=transport, notify=notify, system_secs=system_secs, ranks=ranks, log_bytes=log_bytes,
    )  # fmt: skip
    return Watch(model, layers, settings)

"""The public verbs, with their whole signatures. A verb loads its room when it is called; this file loads no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from torcheer.errors import BadArgument, NotAnArchive
from torcheer.history import ModelHistory
from torcheer.selection import Layers
from torcheer.terminal import did_you_mean, first_names, names_options

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    from torcheer.archive import Archive
    from torcheer.capture.proof.replay import Validation
    from torcheer.capture.values.save_policy import Save
    from torcheer.drawing import Drawing, Style
    from torcheer.extraction.extracted_tensors import ExtractedTensors
    from torcheer.extraction.extraction_estimate import Estimate
    from torcheer.extraction.extraction_reader import Extraction
    from torcheer.host.live import Live
    from torcheer.interpret.logit_lens import Lens
    from torcheer.interpret.patching import PatchSweep
    from torcheer.memory.memory_plan import Plan
    from torcheer.modelfiles import ModelFile
    from torcheer.monitor.watch import Every, Transport, Watch
    from torcheer.originals.torchlens.older_options import OlderOptions
    from torcheer.runlog.run_folder import RunFolder
    from torcheer.runlog.watch_reader import Watched
    from torcheer.samples import Alert
    from torcheer.studio.report.report import Report
    from torcheer.wire.open_viewer import Viewer

__all__ = [
    "draw", "extract", "lens", "live", "load", "log_forward_pass", "patch_sweep", "plan", "recording", "report", "show",
    "validate", "watch",
]  # fmt: skip

StrPath = str | os.PathLike[str]


def log_forward_pass(
    model: torch.nn.Module,
    inputs: Any = (),
    input_kwargs: Mapping[str, Any] | None = None,
    layers_to_save: Layers | Save = "all",
    *,
    vis_opt: str = "none",
    vis_path: StrPath | None = None,
    save_gradients: bool = False,
    edits: Mapping[Any, Any] | None = None,
    seed: int | None = None,
    fused: bool = False,
    level: str = "function",
    structure: bool = True,
    timing: str = "host",
    **older: Unpack[OlderOptions],
) -> ModelHistory:
    """Run `model` once and return a history of every operation.

    - `inputs`: a tensor; a tuple or list of arguments; a dict of forward's parameters; or one argument of any kind.
    - `input_kwargs`: keyword arguments of forward, in addition to `inputs`.
    - `layers_to_save`: "all", "none", or one or a list of: labels ('conv2d_3', 'conv2d_3:2'), module paths
      ('features.6': the module's output), positions (7, -1), patterns ('features.*': everything inside),
      module classes ('Conv2d', nn.Conv2d), functions ('relu'), modules, roles (below), predicates
      (lambda layer: layer.shape[-1:] == (512,)); a `Save` also sets device and dtype.
    - `vis_opt`: "rolled" or "unrolled" draws the model to `vis_path`; "none" does not.
    - `vis_path`: the file to draw to; by default `<ModelName>.svg` in the working directory.
    - `save_gradients`: save the gradients of saved values in later `backward` calls (`.grad_contents`).
    - `edits`: functions from a layer's output to a new tensor of the same shape, applied while the model runs:
      {'relu_1': tl.edits.zero(), 'head': lambda output: output * 2}; layers are named as for `layers_to_save`.
    - `seed`: seed for torch's random numbers; None: not seeded.
    - `fused`: record a fused attention kernel as one operation, without the operations inside.
    - `level`: "function" records the functions that the code calls, "aten" also the dispatcher calls below.
    - `structure`: False records only outputs of the modules in `layers_to_save`, by forward hooks: no operations, and
      no more cost than hooks.
    - `timing`: "host" reads the host's clock, which on an accelerator is the time of a launch, and called so; "device"
      measures the operations by events of the accelerator, without waiting for it in between.
    - `older`: options by their TorchLens names (`vis_outpath`, `vis_nesting_depth`, `random_seed`, `output_device` …).

    Roles name modules of a transformer, whatever its class: of block i, from 0; of each, [*]; of the last, [-1].

    | role | value |
    |---|---|
    | `resid[i]`, `resid[i].in` | what block i returns, what it receives |
    | `attn[i]` or `attn[i].out`, `attn[i].in` | what the attention's output projection returns, what it receives |
    | `attn[i].q`, `attn[i].k`, `attn[i].v` | queries, keys and values, as projected |
    | `attn[i].z` | the heads' results, before the output projection |
    | `cross[i]`, `cross[i].q` … | the same of the attention to another sequence |
    | `mlp[i]` or `mlp[i].out`, `mlp[i].in` | what the MLP returns, what it receives |
    | `mlp[i].hidden` | its neurons: what its last projection receives |
    | `embed`, `norm`, `unembed` | token embeddings, the norm after the last block, the logits |

    >>> import torch
    >>> history = log_forward_pass(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> history['linear_1'].tensor_contents.shape
    torch.Size([1, 3])
    """
    if older:
        from torcheer.originals.torchlens.older_verbs import log_forward_pass as run_older

        return run_older(
            model, inputs, input_kwargs, layers_to_save, vis_opt=vis_opt, vis_path=vis_path, options=older,
            save_gradients=save_gradients, edits=edits, seed=seed, fused=fused, level=level, structure=structure,
            timing=timing,
        )  # fmt: skip
    from torcheer.capture.forward_pass import log_forward_pass as run

    if vis_opt not in ("none", "rolled", "unrolled"):
        raise BadArgument(f"vis_opt={vis_opt!r}: use 'none', 'rolled' (loops as one node) or 'unrolled'")
    if vis_opt != "none" and not structure:
        raise BadArgument(f"vis_opt={vis_opt!r} draws the operations of the run; structure=False records none of them")
    try:
        history = run(
            model, inputs, input_kwargs=input_kwargs, layers_to_save=layers_to_save, save_gradients=save_gradients,
            edits=edits, seed=seed, fused=fused, level=level, structure=structure, timing=timing,
        )  # fmt: skip
    except Exception as error:
        if vis_opt != "none" and (partial := getattr(error, "history", None)):
            _write_drawing(partial, vis_path, rolled=vis_opt == "rolled")
        raise
    if vis_opt != "none":
        _write_drawing(history, vis_path, rolled=vis_opt == "rolled")
    return history


@names_options
def recording(
    model: torch.nn.Module | None = None,
    *,
    layers_to_save: Layers | Save = "all",
    save_gradients: bool = False,
    edits: Mapping[Any, Any] | None = None,
    fused: bool = False,
    level: str = "function",
    structure: bool = True,
    timing: str = "host",
) -> AbstractContextManager[ModelHistory]:
    """Record the torch functions that are called inside the block: a training step, a `generate` loop.

    The operations of a backward pass run below these functions: they are recorded with `level="aten"` only. Without it
    gradients are there where an optimizer reads them, and with `save_gradients=True` as `.grad_contents`.

    - `model`: its modules and parameters name the operations; None: operations without modules.
    - `layers_to_save`, `save_gradients`, `edits`, `fused`, `level`, `structure`, `timing`: as for `log_forward_pass`.
    """
    from torcheer.capture.forward_pass import recording as record

    return record(
        model, layers_to_save=layers_to_save, save_gradients=save_gradients, edits=edits, fused=fused, level=level,
        structure=structure, timing=timing,
    )  # fmt: skip


@names_options
def validate(
    what: torch.nn.Module | ModelHistory,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Validation:
    """Validate a capture: every operation is reproduced bit for bit, and every edge matters.

    The `verdict` of the report is "held", "FAILED", or "not judged": a part could not be replayed. Only "held" is true.

    - `what`: a model, which is run once with `inputs` and left as it was, its buffers and random generators, too; or a
      history captured in this process.
    - `inputs`, `input_kwargs`, `seed`: as for `log_forward_pass`.
    """
    from torcheer.capture.proof.replay import validate_history, validate_model

    if isinstance(what, ModelHistory):
        if inputs != () or input_kwargs or seed is not None:
            raise BadArgument("validate: a history has run already; inputs and a seed go with a model")
        return validate_history(what)
    return validate_model(what, inputs, input_kwargs=input_kwargs, seed=seed)


@names_options
def draw(
    what: ModelHistory | torch.nn.Module | torch.Tensor | ModelFile,
    inputs: Any = None,
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    path: StrPath | None = None,
    rolled: bool = False,
    depth: int | str | None = None,
    direction: str = "auto",
    colour_by: str = "kind",
    style: Style | Mapping[str, Any] | None = None,
) -> Drawing:
    """Draw a history; a model, which is run once with `inputs`; the graph of an .onnx or .pt2 file that was loaded; or
    a loss recorded by `torcheer.autograd`, with its backward pass.

    - `what`: what to draw. After a history or a loss the second argument may be the path: `draw(history, "a.svg")`.
    - `inputs`, `input_kwargs`: of a model, as for `log_forward_pass`.
    - `path`: the file to write; the suffix selects the format: .svg, .png, .pdf, .html, .dot, .txt. None: no file.
    - `rolled`: draw repeated layers as one box with a loop; False draws every pass.
    - `depth`: how many levels of modules are expanded; "all" for every operation; None for what fits on a page.
    - `direction`: "down", "right" or "auto".
    - `colour_by`: "kind", "time", "memory", "flops" or "gradient".
    - `style`: a `Style`, or a dict of its fields.

    >>> import torch
    >>> drawing = draw(torch.nn.Linear(2, 3), torch.ones(1, 2))
    >>> drawing.boxes
    3
    """
    if not _is_model(what) and isinstance(inputs, (str, os.PathLike)):
        if path is not None:
            raise BadArgument(f"draw: two paths, {os.fspath(inputs)!r} and {os.fspath(path)!r}; give one")
        inputs, path = None, inputs
    if _is_tensor(what):
        if inputs is not None or input_kwargs or rolled or colour_by != "kind":
            raise BadArgument("draw(loss): inputs, rolled and colour_by belong to a model or a history")
        what = _explained(what)
    elif _is_model(what):
        if inputs is None and not input_kwargs:
            raise BadArgument(
                f"draw({type(what).__name__}): a model is drawn from a run, so give it inputs: draw(model, x)"
            )
        arguments = () if inputs is None else inputs
        what = log_forward_pass(what, arguments, input_kwargs=input_kwargs, layers_to_save="none")  # type: ignore[arg-type]
    elif inputs is not None or input_kwargs:
        raise BadArgument("draw: inputs go with a model; a history has run already, and a file's graph does not run")
    elif not isinstance(what, ModelHistory):
        what = _graph_of_file(what)
    from torcheer.drawing import draw_history

    assert isinstance(what, ModelHistory)
    return draw_history(what, path, rolled=rolled, depth=depth, direction=direction, colour_by=colour_by, style=style)


def _graph_of_file(what: Any) -> ModelHistory:
    from torcheer.modelfiles import ModelFile

    if not isinstance(what, ModelFile):
        raise BadArgument(f"draw needs a history, a model with inputs, a loss, or a file with a graph, got "
                          f"{type(what).__name__}")  # fmt: skip
    return what.history()


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
    from torcheer.host.show import show as open_page

    return open_page(
        _explained(what), inputs, input_kwargs=input_kwargs, port=port, host=host, base_path=base_path,
        allowed_hosts=allowed_hosts, browser=browser, block=block, title=title,
        token_names=token_names, ranks=ranks,
    )  # fmt: skip


@names_options
def report(
    what: ModelHistory | RunFolder | torch.Tensor | StrPath,
    path: StrPath,
    *,
    steps: Sequence[int] | None = None,
    most_bytes: int = 5_000_000,
    title: str = "",
) -> Report:
    """Write a history or a run as a single HTML file: the studio's page, without a server or a network.

    - `what`: a history; a loss of `torcheer.autograd`, with its backward pass step by step; or the path of a run, a
      watch, a recording or a saved history.
    - `path`: the file to write.
    - `steps`: the steps whose values are kept for the 3D view; None: up to 50, evenly spaced.
    - `most_bytes`: the file's maximum size. Pictures get coarser and older states are omitted until it fits; the
      report and the returned object list what was omitted. Statistics and numbers stay exact.
    - `title`: the page's title; by default the run's or model's name.
    """
    from torcheer.studio.report.report import report as write

    return write(_explained(what), path, steps=steps, most_bytes=most_bytes, title=title)


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
    from torcheer.host.live import live as follow

    return follow(
        model, layers, inputs=inputs, input_kwargs=input_kwargs, optimizer=optimizer, to=to, port=port, host=host,
        base_path=base_path, allowed_hosts=allowed_hosts, browser=browser, open_server=open_server, title=title,
        token_names=token_names, step_of=step_of, notify=notify, system_secs=system_secs, ranks=ranks,
    )  # fmt: skip


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
    from torcheer.monitor.watch import watch as begin

    return begin(
        model, layers, what=what, every=every, to=to, optimizer=optimizer, rules=rules, video=video, callback=callback,
        keep=keep, stop_on=stop_on, on_alert=on_alert, step_of=step_of, tell=tell, transport=transport,
        notify=notify, system_secs=system_secs, ranks=ranks, log_bytes=log_bytes,
    )  # fmt: skip


class _ExtractOptions(TypedDict, total=False):
    """The options of `extract` that do not say what it returns."""

    batch_size: int | None
    device: Any
    transform: Callable[[Any], Any] | None
    mask: str | Callable[[Any], Any] | None
    ids: Sequence[Any] | None
    engine: str | None
    workers: int
    writers: int | None
    shard_samples: int | None
    codec: str
    seed: int
    top: bool
    progress: bool | None


@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath,
    dry_run: Literal[False] = False,
    **options: Unpack[_ExtractOptions],
) -> Extraction: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: None,
    dry_run: Literal[False] = False,
    **options: Unpack[_ExtractOptions],
) -> ExtractedTensors: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    dry_run: Literal[True],
    **options: Unpack[_ExtractOptions],
) -> Estimate: ...
@overload
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    dry_run: bool = False,
    **options: Unpack[_ExtractOptions],
) -> Extraction | ExtractedTensors | Estimate: ...
@names_options
def extract(
    model: torch.nn.Module,
    data: Any,
    *,
    layers: Layers,
    to: StrPath | None,
    batch_size: int | None = None,
    device: Any = None,
    transform: Callable[[Any], Any] | None = None,
    mask: str | Callable[[Any], Any] | None = None,
    ids: Sequence[Any] | None = None,
    engine: str | None = None,
    workers: int = 0,
    writers: int | None = None,
    shard_samples: int | None = None,
    codec: str = "raw",
    seed: int = 0,
    top: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Extraction | ExtractedTensors | Estimate:
    """Run `model` over `data` and store `layers` of every sample in the folder `to`; resumes if run again.

    - `data`: a tensor, a Dataset, a DataLoader, or any iterable of batches; of (input, label) the first is the input.
    - `layers`: one or a list, as for `layers_to_save`; a dict gives each a function of the value of a whole batch (a
      tensor) that returns one row per sample, or None: {'Conv2d': lambda value: value.mean((-2, -1))}. A function of
      two parameters also gets the batch, as the loader returned it.
    - `to`: the folder of the extraction; None: return a dict of tensors in memory.
    - `batch_size`: for a tensor or Dataset; default: 32. `device`: where the model runs; default: where it is.
    - `transform`: turns a sample into the model's inputs.
    - `mask`: which positions of each sample are not padding, and stored: a key of the batch ("attention_mask"), or a
      function of the batch as the loader returned it that returns a tensor of (samples, positions).
    - `ids`: a name for each sample.
    - `engine`: "torchrun": the ranks that run this call share the work (the default under torchrun); "ray": actors of
      a Ray cluster; "local": this process alone.
    - `workers`: additional processes on this machine that share the work; with Ray, actors, 0 for as many as fit.
    - `writers`: writer threads per process, each with its own file; default: 4, or 1 for small stores.
    - `shard_samples`: samples per file; default: files of about 256 MB.
    - `codec`: how values are stored: "raw", "float16", "int8", "zstd", or two joined by "+".
    - `seed`: seed of every batch, for stochastic models.
    - `top`: also store each sample's maximum of every unit, so that `features.top` need not read the layers.
    - `dry_run`: run one batch, write nothing and return an `Estimate` of size and time.
    - `progress`: show progress; None: on a terminal and in a notebook.
    """
    from torcheer.extraction.extraction_run import extract as run

    return run(
        model, data, layers=layers, to=to, batch_size=batch_size, device=device, transform=transform, mask=mask,
        ids=ids, engine=engine, workers=workers, writers=writers, shard_samples=shard_samples, codec=codec, seed=seed,
        top=top, dry_run=dry_run, progress=progress,
    )  # fmt: skip


@names_options
def plan(
    model: torch.nn.Module,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    loss: Callable[[Any], Any] | None = None,
    autocast: Any = None,
    dtype: Any = None,
    checkpoint: Any = None,
    accumulate: int = 1,
    world_size: int = 1,
    device: Any = "cuda",
    savings: bool = True,
) -> Plan:
    """Predict the memory of a training step, without a GPU or weights, for models of any size.

    The step runs on meta tensors, which have shapes but no data. Build a large model under
    `with torch.device("meta"):`; of a model with weights, only shapes are used.

    - `model`: any module, on any device.
    - `inputs`, `input_kwargs`: as for `log_forward_pass`; only shapes matter: torch.empty(8, 512, device="meta").
    - `optimizer`: an optimizer instance, a class, a function of parameters, a name from torch.optim ("AdamW"), or a
      list of optimizers; None: a forward pass without gradients.
    - `loss`: a function of the model's output; None: its `.loss`, or the mean of its outputs.
    - `autocast`: plan under torch.autocast with this dtype ("bfloat16"). `dtype`: plan the model with this dtype.
    - `checkpoint`: modules whose activations are recomputed in backward: a path, pattern ('layers.*'), class.
    - `accumulate`: batches per update: with more than one, gradients persist between batches.
    - `world_size`: number of GPUs over which FSDP2 shards parameters, gradients and optimizer state; the batch is that
      of one GPU.
    - `device`: "cuda" or "cpu".
    - `savings`: also plan what bfloat16, checkpointing and sharding would save.
    """
    from torcheer.memory.planning import plan as compute

    return compute(
        model, inputs, input_kwargs=input_kwargs, optimizer=optimizer, loss=loss, autocast=autocast, dtype=dtype,
        checkpoint=checkpoint, accumulate=accumulate, world_size=world_size, device=str(device).partition(":")[0],
        savings=savings,
    )  # fmt: skip


@names_options
def lens(
    model: torch.nn.Module,
    inputs: Any = (),
    *,
    input_kwargs: Mapping[str, Any] | None = None,
    layers: Layers = "resid[*]",
    positions: int | slice | Sequence[int] | None = None,
    tokenizer: Any = None,
) -> Lens:
    """Return the logit lens of a decoder: its prediction after each block.

    It takes one pass, in which norm and head see the residual streams of all layers as one larger batch.

    - `model`: a text decoder, such as a Llama or a GPT-2.
    - `inputs`, `input_kwargs`: as for `log_forward_pass`.
    - `layers`: residual streams: roles ('resid[*]', 'resid[0].in') or paths of blocks.
    - `positions`: which positions to read; None for all.
    - `tokenizer`: an object with `decode`, or a function from a token id to its text, for tables and drawings.
    """
    from torcheer.interpret.logit_lens import lens as read

    return read(model, inputs, input_kwargs=input_kwargs, layers=layers, positions=positions, tokenizer=tokenizer)


@names_options
def patch_sweep(
    model: torch.nn.Module,
    clean: Any,
    corrupted: Any,
    *,
    metric: Callable[[Any], Any],
    layers: Layers = "resid[*]",
    positions: Sequence[int] | None = None,
    heads: Sequence[int] | str | None = None,
    method: str = "exact",
    check: bool = False,
    progress: bool | None = None,
) -> PatchSweep:
    """Patch each activation of a clean run into a corrupted one and measure the effect: a table and a heat map.

    - `model`: a transformer.
    - `clean`, `corrupted`: inputs with the same number of tokens, each as `inputs` of `log_forward_pass`.
    - `metric`: a function from the model's output to a number: lambda out: out.logits[0, -1, 5].
    - `layers`: roles ('resid[*]', 'attn[*]', 'mlp[3].in'), module paths, patterns, classes or modules.
    - `positions`: which positions, one at a time; None for all. With `heads`, where each head is patched.
    - `heads`: which heads of 'attn[*]' (or its q, k, v), one at a time; "all" for every one; None: no heads.
    - `method`: "exact" runs the model once per cell; "gradient" estimates all cells from two runs and one backward
      pass, and needs a metric that returns a tensor.
    - `check`: with "gradient", also run the exact sweep and report the agreement.
    - `progress`: show progress; None: on a terminal and in a notebook.
    """
    from torcheer.interpret.patching import patch_sweep as sweep

    return sweep(
        model, clean, corrupted, metric=metric, layers=layers, positions=positions, heads=heads, method=method,
        check=check, progress=progress,
    )  # fmt: skip


@names_options
def load(path: StrPath) -> ModelHistory | Archive | Extraction | Watched | RunFolder | ModelFile:
    """Open anything that torcheer wrote, or a model file, without torch and without executing code in it.

    | `path` was written by | returns |
    |---|---|
    | `history.save` | a `ModelHistory` |
    | `tl.extract` | an `Extraction`: `extraction["features.6"]` is one array |
    | `tl.watch(to=…)` | a `Watched`: `watched["features.0", "output"].mean` |
    | training, `tl.live(to=…)` | a `RunFolder`: `.tables`, `.watches`, `.captures`, `.config` |
    | captures, recordings, `Writer` | an `Archive` of values |
    | other programs: .safetensors, .gguf, .onnx, .pt2, .pt | a `ModelFile`: `file["conv.weight"][:4]` |

    A URL (s3://bucket/features) is read with fsspec: values on demand; a run as it is at this moment, without its
    checkpoints.
    """
    from torcheer import remote

    if remote.is_url(path):
        return load(_fetch(str(path)))
    folder = Path(path)
    if folder.is_file():
        return _load_model_file(folder)
    if not folder.is_dir():
        raise NotAnArchive(f"there is no file or folder {folder}.{_names_beside(folder)}")
    if (folder / "archive.json").is_file():
        from torcheer.archive import Archive
        from torcheer.archive import load as load_history

        archive = Archive(folder)
        return load_history(folder) if archive.about.get("kind") == "history" else archive
    if (folder / "extraction.json").is_file():
        from torcheer.extraction.extraction_reader import open_extraction

        return open_extraction(folder)
    from torcheer.runlog.run_folder import RunFolder, is_run

    if is_run(folder):
        return RunFolder(folder)
    from torcheer.runlog.watch_reader import logs_in, open_watch

    if logs_in(folder):
        return open_watch(folder)
    from torcheer.archive import load as load_history

    return load_history(folder)  # which says what is missing, or that it is damaged


def _names_beside(path: Path) -> str:
    """Which file or folder may have been meant by one that there is not."""
    parent = path.absolute().parent
    if not parent.is_dir():
        return f" Its folder is missing, too: {parent}"
    names = sorted(entry.name for entry in parent.iterdir() if entry.name[0] != ".")
    return did_you_mean(path.name, names) or f" In {parent} there are: {first_names(names) or 'no files'}"


def _fetch(url: str) -> Path:
    """Return a local folder that stands for a URL, filled as it is read."""
    from torcheer import remote

    folder = remote.open_url(url)
    if not any((folder.local / name).exists() for name in ("archive.json", "extraction.json")):
        folder.fetch_tree()  # of a run, whose readers look into all its folders
    if not any(folder.local.iterdir()):
        raise NotAnArchive(f"{folder.shown} holds nothing that is complete")
    return folder.local


def _load_model_file(path: Path) -> ModelFile:
    from torcheer.modelfiles import ENDINGS, is_model_file, open_model_file

    if is_model_file(path):
        return open_model_file(path)
    raise NotAnArchive(
        f"{path} is a file; torcheer writes folders: of a history, an extraction, a watch, a run or a recording. "
        f"Of other programs' files it reads {', '.join(ENDINGS)}; `torcheer archive import` makes an archive of .npz, "
        f".arrow, .parquet and .zarr"
    )


def _is_model(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where torch is not loaded, there is no model
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _explained(what: Any) -> Any:
    """The history of a loss that was recorded by `torcheer.autograd`, or of its explanation; all else as it is."""
    if _is_tensor(what):
        from torcheer.autograd import explain

        return explain(what).history
    autograd = sys.modules.get("torcheer.autograd")  # where it is not loaded, nothing was explained
    return what.history if autograd is not None and isinstance(what, autograd.Explanation) else what


def _write_drawing(history: ModelHistory, path: StrPath | None, *, rolled: bool) -> None:
    """Every operation in one picture, as `vis_opt` promises."""
    from torcheer.drawing import draw_history

    target = Path(path) if path is not None else Path(f"{history.model_name or 'model'}.svg")
    print(f"drawing written to {draw_history(history, rolled=rolled, depth='all').save(target)}")


if "torch" in sys.modules:  # whoever has loaded torch will capture: load the recorder now, not in the first capture
    import torcheer.capture.forward_pass  # noqa: F401

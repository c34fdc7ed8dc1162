"""Questions about a model's inside: the verbs `lens` and `patch_sweep`, and attention weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torcheer.errors import BadArgument
from torcheer.terminal import names_options

if TYPE_CHECKING:
    import torch

    from torcheer.interpret.logit_lens import Lens
    from torcheer.interpret.patching import PatchSweep
    from torcheer.selection import Layers


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
    from torcheer.inputs import call_arguments
    from torcheer.interpret.logit_lens import read_streams
    from torcheer.interpret.place_hooks import Places

    places = Places(model, layers, "lens")
    return read_streams(places, call_arguments(model, inputs, input_kwargs), positions, tokenizer)


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
    from torcheer.interpret.patching import Sweep

    if method not in ("exact", "gradient"):
        raise BadArgument(f"method={method!r}: use 'exact' or 'gradient'")
    if check and method == "exact":
        raise BadArgument("check=True compares method='gradient' with the exact sweep; this is the exact one")
    if not callable(metric):
        raise BadArgument(f"metric is a {type(metric).__name__}; give a function from the model's output to one number")
    sweep = Sweep(model, clean, corrupted, metric, layers, positions, heads)
    if method == "exact":
        return sweep.exact(progress)
    estimate = sweep.by_gradient()
    if check:
        estimate.agreement = estimate.compare(sweep.exact(progress))
    return estimate

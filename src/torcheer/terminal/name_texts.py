"""Names and values for people: the one that was meant, the first ones, shortened."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from torcheer.errors import UnknownName

MOST_COMPARED = 5000  # a history can have 100,000 names: comparing with all of them takes seconds


# What people try, in small letters -> what it is called here; where there are several, the first that there is.
TRIED: Mapping[str, tuple[str, ...]] = {
    # attributes
    **dict.fromkeys(
        ("output", "value", "values", "activation", "activations", "data", "array", "numpy", "result"),
        ("tensor_contents", "output"),
    ),
    **dict.fromkeys(("gradient", "gradient_contents"), ("grad_contents",)),
    **dict.fromkeys(
        ("to_dataframe", "dataframe", "to_df", "df", "as_dataframe", "pandas", "to_csv", "to_dict", "table"),
        ("to_pandas",),
    ),
    **dict.fromkeys(("weight", "weights", "params"), ("parameters", "stored")),
    "parameters": ("stored",),
    **dict.fromkeys(("plot", "visualize", "visualise", "render", "graph", "svg"), ("draw",)),
    **dict.fromkeys(("html", "to_html"), ("report",)),
    **dict.fromkeys(("nodes", "operations"), ("ops",)),
    **dict.fromkeys(("keys", "names"), ("layer_labels",)),
    **dict.fromkeys(("dump", "write", "export"), ("save",)),
    **dict.fromkeys(("diff", "difference"), ("compare",)),
    **dict.fromkeys(("flops", "macs", "total_flops", "stats"), ("summary",)),
    **dict.fromkeys(("check", "verify", "replay"), ("validate",)),
    "op_type": ("name",),
    # options
    **dict.fromkeys(
        ("layers", "layer", "save", "save_layers", "modules", "keep"), ("layers_to_save", "layers", "keys")
    ),
    "layer_names": ("layers_to_save", "layer_labels"),
    **dict.fromkeys(("gradients", "grads", "grad", "save_grads", "save_grad"), ("save_gradients", "grad_contents")),
    **dict.fromkeys(("color_by", "color", "colour", "colors", "colours"), ("colour_by",)),
    **dict.fromkeys(("hooks", "interventions", "patch", "ablate"), ("edits",)),
    **dict.fromkeys(
        ("out", "out_dir", "output_dir", "outdir", "dir", "directory", "folder", "file", "filename", "save_to",
         "save_path", "log_dir", "logdir", "dest", "destination", "path", "to"),
        ("to", "path", "vis_path"),
    ),
    **dict.fromkeys(("exist_ok", "force"), ("overwrite",)),
    **dict.fromkeys(("optimiser", "optim", "opt", "optimizer"), ("optimizer", "optimizers")),
    **dict.fromkeys(("model", "net", "network"), ("models",)),
    **dict.fromkeys(("criterion", "loss_fn", "loss"), ("losses", "loss")),
    **dict.fromkeys(
        ("dataloader", "dataloaders", "train_loader", "dataset", "datasets", "loader"), ("loaders", "data")
    ),
    **dict.fromkeys(("scheduler", "lr_scheduler"), ("schedules",)),
    **dict.fromkeys(("epochs", "max_epochs", "n_epochs"), ("num_epochs", "stages")),
    **dict.fromkeys(("interval", "freq", "frequency", "every_n_steps", "log_every", "step", "steps"), ("every",)),
    **dict.fromkeys(("stop", "halt", "halt_on", "stop_when"), ("stop_on",)),
    **dict.fromkeys(("alerts", "checks"), ("rules",)),
    **dict.fromkeys(("open_browser", "show"), ("browser",)),
    **dict.fromkeys(("half", "precision"), ("dtype", "autocast")),
    **dict.fromkeys(("amp", "mixed_precision"), ("autocast",)),
    **dict.fromkeys(
        ("grad_accum", "gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps"), ("accumulate",)
    ),
    **dict.fromkeys(("max_bytes", "max_size"), ("most_bytes", "log_bytes")),
    **dict.fromkeys(("num_workers", "processes"), ("workers",)),
    **dict.fromkeys(("args", "input", "x", "batch"), ("inputs", "data")),
    "kwargs": ("input_kwargs",),
    **dict.fromkeys(("random_seed", "manual_seed", "seeds"), ("seed",)),
    **dict.fromkeys(("collate_fn", "collator"), ("collate",)),
    **dict.fromkeys(("bs", "batchsize"), ("batch_size",)),
    "learning_rate": ("lr",),
    **dict.fromkeys(("fit", "train", "start", "begin", "train_loop"), ("run",)),
    **dict.fromkeys(("load_checkpoint", "resume_from", "load"), ("resume",)),
    **dict.fromkeys(("save_checkpoint", "checkpoint"), ("save",)),
    **dict.fromkeys(("metrics", "logs", "history", "scalars", "losses"), ("tables", "rows")),
    **dict.fromkeys(("stopped", "is_stopped", "stop_requested"), ("should_stop",)),
    **dict.fromkeys(("address", "link"), ("url",)),
    **dict.fromkeys(("images", "audio", "media"), ("samples",)),
    # names of rooms
    "trainer": ("session",),
}  # fmt: skip


def did_you_mean(name: object, names: Iterable[object], most: int = 1) -> str:
    """Return the sentence " Did you mean 'x' or 'y'?", or "" where no name is near.

    A name of TRIED comes before one that is spelled alike: `.output` means the tensor, not `.outputs`.

    name: what was asked for; names: what there is; most: how many names to suggest at most.
    Upper and lower case count as the same. Of very many names, those with the same first letters are compared.
    """
    asked = str(name)[:200]
    word = asked.lower()
    by_lower: dict[str, str] = {}
    for known in map(str, names):
        if known != name and (known.lower() not in by_lower or known[:1] == asked[:1]):
            by_lower[known.lower()] = known
    candidates = list(by_lower)
    if len(candidates) > MOST_COMPARED:
        candidates.sort(key=lambda known: sum(known[:letters] != word[:letters] for letters in (3, 10, 20, 40)))
    meant = [word] if word in by_lower else [known for known in TRIED.get(word, ()) if known in by_lower][:1]
    near = meant or get_close_matches(word, candidates[:MOST_COMPARED], most + 4, cutoff=0.5)
    near = sorted(near, key=lambda known: sorted(known) != sorted(word))[:most]  # "Adma" is rather "Adam" than "Adamax"
    return f" Did you mean {' or '.join(repr(by_lower[known]) for known in near)}?" if near else ""


def unknown_attribute(view: object, name: str, others: Iterable[str] = ()) -> AttributeError:
    """Return the error for an attribute that there is not; `others`: names that count beside those of `dir`."""
    hint = did_you_mean(name, [*(key for key in dir(view) if not key.startswith("_")), *others])
    return AttributeError(f"{type(view).__name__} has no attribute {name!r}.{hint}")


class NamedItems(dict[str, Any]):
    """A dict by name whose lookup error says which names there are."""

    def __init__(self, kind: str, items: Mapping[str, Any], error: type[UnknownName] = UnknownName) -> None:
        super().__init__(items)
        self._kind, self._error = kind, error

    def __missing__(self, name: object) -> Any:
        hint = did_you_mean(name, self, 2) or f" There are {first_names(self) or 'none'}."
        raise self._error(f"no {self._kind} named {name!r} among {len(self)}.{hint}")


def first_names(names: Iterable[object], most: int = 8) -> str:
    """List the first names, separated by commas; "…" at the end where there are more."""
    known = list(map(str, names))
    return ", ".join([*known[:most], *["…"] * (len(known) > most)])


def shortened(text: str, width: int) -> str:
    """Shorten a name to `width` characters by leaving out its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def short_repr(value: object) -> str:
    """Return a value's repr on one short line: of an untrusted value it may be endless."""
    return _short.repr(value)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def printable(text: str) -> str:
    """Escape control characters in untrusted text: it cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )

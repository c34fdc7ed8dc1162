"""Variables of a layer: what hooks, logs, pages and eTorch's State have of it, each with its names and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class LayerVariable:
    """One variable. A watch, a log and a config say `name`; a network, a page and eTorch's State say `page_name`."""

    name: str  # "" where only a page has it
    page_name: str  # "" where only a log has it
    of: Literal["unit", "weight"]  # one number for each unit of a layer, or for each weight between two
    made_by: Literal["forward", "backward", "optimizer", "program"]  # the last: only a State that a program fills
    doc: str
    watched: Literal["", "always", "default", "asked"] = ""  # default: by a watch that is asked for nothing else
    in_network: bool = False  # the 3D view shows it of any pass


VARIABLES: Final = (
    LayerVariable("output", "Act", "unit", "forward", "what the layer returned, after its activation",
                  watched="default", in_network=True),
    LayerVariable("", "Net", "unit", "forward", "the same before its activation, where that is a module of its own",
                  in_network=True),
    LayerVariable("input", "", "unit", "forward", "what the model was given, where it is not finite", watched="always"),
    LayerVariable("grad", "Grad", "unit", "backward",
                  "the gradient of the loss with respect to what the layer returned", watched="default",
                  in_network=True),
    LayerVariable("weight", "Wt", "weight", "forward", "weights", watched="default", in_network=True),
    LayerVariable("weight_grad", "WtGrad", "weight", "backward", "the gradient of the loss with respect to it",
                  watched="asked"),
    LayerVariable("update", "DWt", "weight", "optimizer", "what it changed by, in a step or since the last value",
                  watched="default"),
    LayerVariable("", "Bias", "unit", "program", "bias weight"),
    LayerVariable("", "Targ", "unit", "program", "target"),
)  # fmt: skip

WATCHED_BY_DEFAULT: Final = tuple(row.name for row in VARIABLES if row.watched == "default")
WATCHED: Final = tuple(row.name for row in VARIABLES if row.watched in ("default", "asked"))
WATCHED_OF_UNITS: Final = tuple(row.name for row in VARIABLES if row.name in WATCHED and row.of == "unit")
WATCHED_OF_WEIGHTS: Final = tuple(row.name for row in VARIABLES if row.name in WATCHED and row.of == "weight")
GRADIENTS: Final = tuple(row.name for row in VARIABLES if row.name in WATCHED and row.made_by == "backward")
ON_PAGE: Final = {row.page_name: row for row in VARIABLES if row.page_name}
PAGE_NAMES: Final = {row.name: row.page_name for row in VARIABLES if row.name and row.page_name}
OF_ANY_PASS: Final = tuple(name for name, row in ON_PAGE.items() if row.made_by in ("forward", "backward"))
LOG_NAMES: Final = {page_name: name for name, page_name in PAGE_NAMES.items()}

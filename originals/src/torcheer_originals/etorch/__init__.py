"""eTorch's Python-side packages, under their own names, on torcheer's: only the import line of a program changes.

from torcheer_originals.etorch import go, etorch, etor, emer, relpos, eplot, env, agg, patgen, prjn, etable, …

Each name is loaded on first use. What drew the desktop window (gi, giv, mat32, …) is accepted: windows, tool bars and
plots become the page's, the rest is ignored with one remark.
"""

from __future__ import annotations

from torcheer.public_names import lazy_names

_MODULES = {  # with the names of these packages
    "go_values": ("go",), "network_handles": ("etorch", "etor", "netview"), "network_kinds": ("emer", "prjn"),
    "relative_places": ("relpos",), "param_sheets": ("params", "pyparams"), "plot_settings": ("eplot",),
    "class_view": ("pygiv",), "toolkit": ("gi",), "tables.etables": ("etable",), "tables.etensors": ("etensor",),
    "tables.table_groups": ("agg", "split"), "tables.table_exchange": ("pyet",), "tables.fixed_tables": ("env",),
    "tables.random_patterns": ("patgen", "rand", "erand"),
}  # fmt: skip
_IGNORED = ("giv", "mat32", "gi3d", "gist", "girl", "svg", "kit", "ki", "units", "efile")

__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"{__name__}.{module}:" for module, names in _MODULES.items() for name in names}
    | {name: f"{__name__}.ignored_calls" for name in _IGNORED},
)

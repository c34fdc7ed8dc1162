"""Text for people: sizes, shapes, tables, progress, misspelt names; and for programs, with `--json`."""

from torcheer.terminal.human_units import (
    human_bytes,
    human_count,
    human_flops,
    human_number,
    human_place,
    human_secs,
    human_shape,
    ordinal,
    plural,
)
from torcheer.terminal.json_facts import add_json, facts_told, plain_data, tell, tell_item, tell_now
from torcheer.terminal.name_texts import (
    NamedItems,
    did_you_mean,
    first_names,
    printable,
    short_repr,
    shortened,
    unknown_attribute,
)
from torcheer.terminal.notices import (
    is_silenced,
    met_difference,
    notice,
    notice_alert,
    warn,
    warn_of_difference,
    warn_or_print,
)
from torcheer.terminal.option_names import names_options, unknown_option
from torcheer.terminal.progress import Progress, ProgressCallback, ignore_progress, wants_progress
from torcheer.terminal.streams import can_redraw, is_notebook, is_terminal
from torcheer.terminal.text_tables import cut, folded, format_table, line_width, plot_text

__all__ = [
    "NamedItems", "Progress", "ProgressCallback", "add_json", "can_redraw", "cut", "did_you_mean", "facts_told",
    "first_names", "folded", "format_table", "human_bytes", "human_count", "human_flops", "human_number",
    "human_place", "human_secs", "human_shape", "ignore_progress", "is_notebook", "is_silenced", "is_terminal",
    "line_width", "met_difference", "names_options", "notice", "notice_alert", "ordinal", "plain_data", "plot_text",
    "plural", "printable", "short_repr", "shortened", "tell", "tell_item", "tell_now", "unknown_attribute",
    "unknown_option", "wants_progress", "warn", "warn_of_difference", "warn_or_print",
]  # fmt: skip

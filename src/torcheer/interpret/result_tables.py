"""Results as tables: a pandas DataFrame where pandas is installed, else the rows."""

from __future__ import annotations

from typing import Any


def as_table(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a DataFrame; as they are, without pandas."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)

"""Printing: JSON for programs, tables for people.

Nearly every text in a table is somebody else's, so it is shown as text: no markup, no control characters, no
marks that turn the direction of writing.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drakkar.settings.text import one_line

_MAX_CELL_CHARS: Final = 200
_PIPE_WIDTH: Final = 2000
"""Columns where no terminal says how many there are: enough for a line to stay one."""


def print_json(value: Any) -> None:
    """ASCII only, so that it is valid in every encoding and harmless on every terminal."""
    print(json.dumps(value, indent=2), flush=True)  # noqa: T201


def print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    make_console().print(make_table(columns, rows))


def make_console() -> Console:
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def make_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of `rows`; a value that is missing or null is an empty cell, one that is a `Text` is printed as
    it is."""
    table = Table(*columns, box=SIMPLE, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # what is cut off could be the part that matters
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    return Text("" if value is None else one_line(str(value), _MAX_CELL_CHARS, exact=True))


def seconds(value: object) -> str:
    """A duration that a worker told, as a cell; empty for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:.0f} s" if abs(value) < 1e9 else ""

"""The command `drakkar`."""

from drakkar.cli._entry import main

__all__ = ["main"]

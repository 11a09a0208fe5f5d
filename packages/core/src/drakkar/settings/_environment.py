"""Settings that come as text: from `DK_` variables and from the command line.

Only names that are meant for the settings are looked at: those with a double underscore, and those of root
keys. Any other `DK_` name belongs to somebody else, such as a background worker that reads `DK_GC_INTERVAL`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from drakkar.settings._keys import kind_of
from drakkar.settings.mask import is_secret_name
from drakkar.settings.models import Settings
from drakkar.settings.text import name_list

PREFIX: Final = "DK_"
WORKERS_VARIABLE: Final = "DK_WORKERS"
"""Stands for `WORKERS_KEY`; must not say something else than its long name."""

WORKERS_KEY: Final = "supervisor.workers"

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,4})?")
"""As in a file: no `0123`, which may be read as 83, and no `+5`."""

_WORDS: Final = {
    "true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


def variable(path: tuple[str, ...]) -> str:
    """The name of the environment variable for the key at `path`."""
    return PREFIX + "__".join(path).upper()


def settings_in(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names in `environ` that are meant for the settings, each with the path of its key.

    Short paths come first, so that of a map and a key inside it the key has the last word.
    """
    roots = {variable((key,)) for key in Settings.model_fields}
    names = [name for name in environ if name.startswith(PREFIX) and ("__" in name or name in roots)]
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        yield name, tuple(name.removeprefix(PREFIX).lower().split("__"))


def parse(path: tuple[str, ...], text: str) -> Any:
    """Return the value that `text` stands for at `path`.

    Text that does not look like the kind of value wanted there stays text, which the models then refuse; so
    does text for a key that does not exist. Raises `ValueError` that goes on from the name of the key, for
    what must be JSON and is not.
    """
    match kind_of(path):
        case "flag":
            return _WORDS.get(text.lower(), text)
        case "number":
            return _number(text)
        case "folder":
            return absolute(text, Path())
        case "names":
            return _json(text) if text.lstrip().startswith("[") else name_list(text)
        case "json":
            return _json(text)
        case "option":
            # A secret is text whatever it looks like: a random one may read as a number, or as null.
            return text if is_secret_name(path[-1]) else _option(text)
        case "text":
            return text


def absolute(folder: str, base: Path) -> str:
    """`folder` as seen from `base`; what is empty or will be refused stays as it is.

    Raises `ValueError` that goes on from the name of the key.
    """
    if not folder or folder.startswith(("/", "~")):
        return folder
    try:
        return str(base.absolute() / folder)
    except OSError:  # whoever started this process has deleted the folder that it is in
        raise ValueError("must be an absolute path, since the current folder is gone") from None


def _number(text: str) -> int | float | str | None:
    if text == "null":
        return None
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _option(text: str) -> Any:
    # Which kind a provider wants is not known here: what is JSON is taken for it, except for strings. Text
    # that only begins like a list may be a prefix, say; a provider that wanted a list refuses it.
    try:
        value = _loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _json(text: str) -> Any:
    try:
        return _loads(text)
    except RecursionError:
        raise ValueError("nests too deeply") from None
    except ValueError as error:
        # Without the cause: its text and its object hold the value, which may be a secret.
        where = f" (character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"must be JSON, such as [...] or {{...}}; this is not{where}") from None


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a key is there twice")
    return data


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("beyond the range of a float")
    return number

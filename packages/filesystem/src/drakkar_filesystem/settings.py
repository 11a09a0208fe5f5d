"""The options of the provider, checked. Nothing here looks at the disk."""

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SECTION: Final = "fleet.registry.filesystem"
DIR_KEY: Final = f"{_SECTION}.dir"
_FOREVER: Final = 1e11  # some three thousand years; above that, nanoseconds would be beyond all file times


@dataclass(frozen=True, slots=True)
class FilesystemSettings:
    """Options that hold."""

    dir: Path
    """The cards are in its folder `workers`. Absolute; need not exist."""

    explicit: bool = True
    """The user chose `dir`, so it must work at start; a derived folder is best effort."""

    prune_after_seconds: float | None = None
    """Delete cards older than this; None: what the worker says at `start`."""


_KNOWN: Final = tuple(FilesystemSettings.__dataclass_fields__)
_FOR_PEOPLE: Final = ("dir", "prune_after_seconds")
"""The others are not for a settings file: the worker sets them itself, or a test does."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Options of the lease half that hold."""

    dir: Path
    """The leases are in its folder `leases`. Absolute; need not exist."""

    local: bool = False
    """The folder was derived from one that other hosts do not see."""

    boot_id: str | None = None
    """For tests: the host that this process says it runs on; None: the real one."""


_LEASES_KNOWN: Final = (*_KNOWN, *(key for key in LeaseSettings.__dataclass_fields__ if key != "dir"))


def read_settings(options: Mapping[str, Any]) -> FilesystemSettings:
    """Return the settings in `options`.

    Raises `ValueError`, one line that names the option, when one is unknown, missing or no good.
    """
    _refuse_unknown(options, _KNOWN)
    return FilesystemSettings(
        dir=_folder(options.get("dir", "")),
        explicit=_flag("explicit", options.get("explicit", True)),
        prune_after_seconds=_seconds(options.get("prune_after_seconds")),
    )


def read_lease_settings(options: Mapping[str, Any]) -> LeaseSettings:
    """Return the settings of the lease half in `options`, which may be those of the registry half as well.

    Raises `ValueError` as `read_settings` does.
    """
    _refuse_unknown(options, _LEASES_KNOWN)
    read_settings({key: options[key] for key in _KNOWN if key in options})
    boot_id = options.get("boot_id")
    if boot_id is not None and (not isinstance(boot_id, str) or not boot_id):
        raise ValueError(f"{_SECTION}.boot_id must be a text that is not empty")
    return LeaseSettings(
        dir=_folder(options.get("dir", "")),
        local=_flag("local", options.get("local", False)),
        boot_id=boot_id,
    )


def _refuse_unknown(options: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in options:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), _FOR_PEOPLE, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there is {', '.join(_FOR_PEOPLE)}"
            raise ValueError(f"{_SECTION} has no option {str(key)!r}, {hint}")


def _folder(value: object) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{DIR_KEY} must be a path, not {_kind(value)}")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise ValueError(f"{DIR_KEY} must be a path in text, not in bytes")
    if not text.strip():
        raise ValueError(f"{DIR_KEY} is empty: name a folder that every worker of the fleet sees")
    try:
        usable = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise ValueError(f"{DIR_KEY} holds a character that no path can have: {text!r}")
    return Path(text).absolute()


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_SECTION}.{name} must be true or false, not {_kind(value)}")
    return value


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        shown = _kind(value)  # of text, which may be a secret, only that it is text
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = f"{max(value, -_FOREVER):g}"
        raise ValueError(f"{_SECTION}.prune_after_seconds must be a number of seconds above 0, not {shown}")
    return float(min(value, _FOREVER))


def _kind(value: object) -> str:
    """What it is, in the words of a settings file."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", dict: "a map"}
    kinds |= {list: "a list", tuple: "a list", type(None): "nothing"}
    return kinds.get(type(value), "something else")

"""Read the settings: the file, the environment on top, what the command line says on top of that.

Maps are merged key by key, everything else is replaced. A relative folder is one beside the file that names
it, else one in the current folder; the settings hold its absolute path.

Every error is a `ConfigError` of one line that names where the value came from, the key, what is wrong and
what to do, and never repeats a value that may be a secret. When there are several, it tells the first and how
many more.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from drakkar.errors import ConfigError
from drakkar.settings._environment import (
    WORKERS_KEY,
    WORKERS_VARIABLE,
    absolute,
    parse,
    settings_in,
    variable,
)
from drakkar.settings._keys import folder_keys, keys_in, kind_of, known_keys
from drakkar.settings._origins import Origins
from drakkar.settings._yaml import read_yaml
from drakkar.settings.mask import mask_text
from drakkar.settings.models import Settings
from drakkar.settings.text import KeyPath, dotted, kind, nearest, one_line

FILE_VARIABLE: Final = "DK_CONFIG"


def load_settings(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, str | float] | None = None,
    overrides_from: str = "overrides",
) -> Settings:
    """Return the settings in effect.

    `environ` is the process's environment unless given. Without a `file` it is the one that `DK_CONFIG`
    names there. `overrides` maps dotted keys to text, which is read as it would be in a `DK_` variable, or to
    numbers, true and false as they are; messages about them begin with `overrides_from`. Without a file, and
    with nothing else set, all are defaults.

    Raises `ConfigError` for whatever does not hold.
    """
    draft = _Draft()
    environ = os.environ if environ is None else environ
    if file is None and (named := environ.get(FILE_VARIABLE)):
        file = Path(named)
    if file is not None:
        draft.take_file(file)
    for name, path in settings_in(environ):
        if name != variable(path):
            draft.problems.append(f"{one_line(name)}: write it in capitals, {one_line(variable(path))}")
        else:
            draft.take(path, environ[name], name)
    if WORKERS_VARIABLE in environ:
        path = tuple(WORKERS_KEY.split("."))
        draft.take_workers(path, environ)
    for key, value in (overrides or {}).items():
        draft.take(tuple(key.split(".")), value, overrides_from)
    return draft.settings()


@dataclass(slots=True)
class _Draft:
    """What was read so far."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: Origins = field(default_factory=Origins)
    problems: list[str] = field(default_factory=list)

    def take_file(self, file: Path) -> None:
        self.data, lines = read_yaml(file)
        for path, line in lines.items():
            self.origins.put(path, None, f"{one_line(str(file), 500)}, line {line}")
        for *sections, key in folder_keys():
            inside: Any = self.data
            for section in sections:
                inside = inside.get(section) if isinstance(inside, dict) else None
            if isinstance(inside, dict) and isinstance(folder := inside.get(key), str):
                inside[key] = absolute(folder, file.parent)

    def take(self, path: tuple[str, ...], value: object, origin: str) -> None:
        try:
            if not isinstance(value, str | int | float):
                raise ValueError(f"must be given as text, a number, true or false, not {kind(value)}")
            self._put(path, parse(path, value) if isinstance(value, str) else value, origin)
        except ValueError as error:
            self.problems.append(f"{one_line(origin)}: {dotted(path)} {error}")

    def take_workers(self, path: tuple[str, ...], environ: Mapping[str, str]) -> None:
        """Take the short variable; a long one beside it must say the same, since neither is meant to win."""
        text, long_name = environ[WORKERS_VARIABLE], variable(path)
        try:
            if long_name in environ and parse(path, environ[long_name]) != parse(path, text):
                self.problems.append(f"{WORKERS_VARIABLE}: it says something else than {long_name}; drop one")
        except ValueError:
            pass  # which of them is no list is told where each is taken
        self.take(path, text, WORKERS_VARIABLE)

    def _put(self, path: tuple[str, ...], value: Any, origin: str) -> None:
        inside = self.data
        for length, part in enumerate(path[:-1], 1):
            if inside.get(part) is None:  # missing, or a key with nothing under it
                inside[part] = {}
            inside = inside[part]
            if not isinstance(inside, dict):
                raise ValueError(f"cannot be set, since {dotted(path[:length])} is {kind(inside)}")
        _merge(inside, path[-1], value)
        self.origins.put(path, value, origin)

    def settings(self) -> Settings:
        try:
            settings = Settings.model_validate(self.data)
        except ValidationError as error:
            details = error.errors(include_url=False, include_input=False)
            self.problems += [self._told(detail) for detail in details]
        else:
            settings._origins = self.origins
            if not self.problems:
                return settings
        more = len(self.problems) - 1
        # Without the cause: a validation error holds the input, secrets included.
        # Masked, since a key may be a value that slipped into its place.
        raise ConfigError(mask_text(self.problems[0]) + (f" (and {more} more)" if more else "")) from None

    def _told(self, error: ErrorDetails) -> str:
        path, message, context = error["loc"], error["msg"], error.get("ctx", {})
        origin = self.origins.of(path)
        if error["type"] == "extra_forbidden":
            return f"{origin}unknown key {dotted(path)}; {self._hint(path, origin)}"
        if error["type"] == "value_error":
            message = str(context["error"])
        elif error["type"] == "missing":
            message = "is missing; add it"
        elif error["type"] == "relation":
            origin = self.origins.of(path, tuple(str(context["other"]).split(".")))
        return f"{origin}{dotted(path)} {one_line(message, 300)}"

    @staticmethod
    def _hint(path: KeyPath, origin: str) -> str:
        key = dotted(path)
        near = nearest(key, [known for known in known_keys() if not key.startswith(f"{known}.")])
        parts = tuple(key.split("."))
        dots_inside = any("." in str(part) for part in path)  # as in a file with `ui.port: 80`
        if dots_inside and (near == key or kind_of(parts) == "option"):
            return f"keys are nested: write {', below it '.join(f'{part}:' for part in parts)}"
        if near is None:
            there = ", ".join(keys_in(path[:-1]))
            return f"known keys are {there}" if there else "remove it"
        name = f" ({variable(tuple(near.split('.')))})" if origin.startswith("DK_") else ""
        return f"did you mean {near}{name}?"


def _merge(target: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(value, dict) and isinstance(target.get(key), dict):
        for inner_key, inner in value.items():
            _merge(target[key], inner_key, inner)
    else:
        target[key] = value

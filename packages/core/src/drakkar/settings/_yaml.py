"""The settings file as plain data, with the line that each key stands on.

YAML can do more than a settings file needs, and some of it bites: a repeated key silently wins, `2024-01-01`
is a date and `0123` is 83, `<<` and aliases can grow a small file into gigabytes. So the nodes are turned
into data here, not by the library's constructor: maps, lists, text, numbers, true, false and null; keys are
text and unique; depth and size are bounded, aliases counted as often as they are used.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from drakkar.errors import ConfigError
from drakkar.settings._values import MAX_DEPTH
from drakkar.settings.text import KeyPath, dotted, one_line

MAX_FILE_BYTES: Final = 512 * 1024
_MAX_NODES: Final = 100_000

_TAG: Final = "tag:yaml.org,2002:"
_ODD_NUMBER: Final = re.compile(r"[-+]?0[0-9xXbBoO_].*|\+.*|.*[_:].*", re.DOTALL)
"""What YAML 1.1 takes for another number than a reader sees: 0123 is 83, and 12:30 is 750."""

_QUOTED: Final = re.compile(r"""(['"])(?!<)..+\1""", re.DOTALL)

_REWORDED: Final = {
    "found character '\\t' that cannot start any token": "holds a tab; use spaces",
    "but found another document": "holds two documents (---); keep one",
}
"""Mistakes that the library tells in words of its own, by these words."""


def read_yaml(file: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """Return the map that `file` holds, and the line of each of its keys, those of maps in maps included.

    An empty file is an empty map. Raises `ConfigError`, naming the file and where there is one the line; it
    has no cause, since the library's errors quote the file, secrets included.
    """
    text = _read(file)
    name = one_line(str(file), 500)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None or root.tag == f"{_TAG}null":
            return {}, {}
        if not isinstance(root, yaml.MappingNode) or root.tag != f"{_TAG}map":
            raise _NoSettingsError("must hold a map of keys, such as 'worker_name: worker-1'", root)
        reader = _Reader()
        return reader.map(root, (), 0), reader.lines
    except _NoSettingsError as error:
        raise ConfigError(f"{name}, line {error.node.start_mark.line + 1}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        problem = _REWORDED.get(error.problem or "") or f"not YAML: {_problem(error)}; correct the file"
        raise ConfigError(f"{name}{where}: {problem}") from None
    except RecursionError:
        raise ConfigError(f"{name}: not YAML: nested too deeply; correct the file") from None
    except (yaml.YAMLError, ValueError, OverflowError):  # control characters; an escape beyond Unicode
        raise ConfigError(
            f"{name}: not YAML: it holds characters that it must not; correct the file"
        ) from None


class _NoSettingsError(Exception):
    def __init__(self, message: str, node: yaml.Node) -> None:
        super().__init__(message)
        self.node = node


class _Reader:
    """Turns nodes into data, remembering lines and how much there was."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._scalars = yaml.constructor.SafeConstructor()
        self._nodes_left = _MAX_NODES

    def map(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                raise _NoSettingsError("merge keys (<<) are not supported; write the keys out", key_node)
            if key_node.tag != f"{_TAG}str":
                raise _NoSettingsError("a key must be text; put it in quotes", key_node)
            key: str = key_node.value
            inner = (*path, key)
            if key in data:
                raise _NoSettingsError(f"{dotted(inner)} is there twice; remove one of the two", key_node)
            self.lines[inner] = key_node.start_mark.line + 1
            data[key] = self._value(value_node, inner, depth + 1)
        return data

    def _value(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self._nodes_left -= 1
        if depth > MAX_DEPTH:
            raise _NoSettingsError(f"{dotted(path)} nests deeper than {MAX_DEPTH}", node)
        if self._nodes_left < 0:
            raise _NoSettingsError(f"more than {_MAX_NODES} values, aliases included", node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self.map(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self._value(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        raise _NoSettingsError(f"{dotted(path)} has a tag (!...) that is not supported; remove it", node)

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        try:
            match node.tag.removeprefix(_TAG):
                case "int" | "float" if _ODD_NUMBER.fullmatch(node.value):
                    return node.value
                # Dates and the lone signs = and << are text here.
                case "str" | "timestamp" | "value" | "merge":
                    return node.value
                case "null":
                    return None
                case "bool":
                    return self._scalars.construct_yaml_bool(node)
                case "int":
                    return self._scalars.construct_yaml_int(node)
                case "float":
                    return self._scalars.construct_yaml_float(node)
        except (ValueError, IndexError, KeyError) as error:  # !!int x, a number of 5000 digits
            raise _NoSettingsError(f"{dotted(path)} is not a number that can be read", node) from error
        raise _NoSettingsError(f"{dotted(path)} has a tag (!...) that is not supported; remove it", node)


def _read(file: Path) -> str:
    name = one_line(str(file), 500)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{name}: there is no such file; give the settings file with -c") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{name}: cannot be read: {reason}; give a readable file with -c") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: larger than {MAX_FILE_BYTES} bytes, so this is no settings file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}, line {line}: not UTF-8; save the file as UTF-8") from None


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "it cannot be parsed"
    if problem.startswith("expected "):  # then it names signs and tokens of YAML, or one character, alone
        return one_line(problem)
    # What the library quotes comes from the file: `auth_token: *hidden` is an "undefined alias 'hidden'".
    return one_line(_QUOTED.sub("there", problem))

"""Options that several commands have, and the settings that follow from them."""

import argparse
import os
from pathlib import Path
from typing import Final

from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings
from drakkar.settings.load import FILE_VARIABLE

_DEFAULT_FILE: Final = Path("drakkar.yaml")


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=_file,
        help="settings file (default: the one that DK_CONFIG names, else ./drakkar.yaml if there is one)",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one key, such as fleet.registry.provider=none; may be repeated",
    )


def add_json_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def settings_from(arguments: argparse.Namespace, **flags: str | None) -> Settings:
    """The settings in effect. `flags` are options that stand for a key, with `__` for its dots; they come
    last, and None is an option that was not given.

    Raises `ConfigError`, also for a `--set` that is none.
    """
    overrides: dict[str, str] = {}
    for assignment in arguments.set:
        key, equals, text = assignment.partition("=")
        if not (key and equals):  # without repeating it: it may be the secret alone
            raise ConfigError("--set must be followed by KEY=VALUE, such as fleet.registry.provider=none")
        overrides[key] = text
    overrides |= {key.replace("__", "."): text for key, text in flags.items() if text is not None}
    file = _settings_file(arguments.config)
    return load_settings(file, overrides=overrides, overrides_from="command line")


def _file(name: str) -> Path:
    if not name:
        raise argparse.ArgumentTypeError("names no file")
    return Path(name)


def _settings_file(given: Path | None) -> Path | None:
    if given is not None or os.environ.get(FILE_VARIABLE):
        return given
    try:
        _DEFAULT_FILE.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        pass  # it is there, and whoever reads it finds out what is wrong with it
    return _DEFAULT_FILE

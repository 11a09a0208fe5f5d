"""The command line: which commands there are, and errors of one line.

Only the module of the command that is asked for is imported.
"""

import argparse
import importlib
from collections.abc import Sequence
from typing import Final, NoReturn

from drakkar.errors import ConfigError

COMMANDS: Final = {
    "run": "run one worker until SIGTERM, SIGHUP or Ctrl-C",
    "workers": "show the fleet, as a running worker sees it",
    "leases": "show who leads what, or have a leader step down",
    "supervisor": "show the background workers of a running worker, or which are installed",
    "providers": "show the installed providers, and which do not load and why",
    "config": "show or check the settings in effect",
    "testkit": "hold an installed provider to its promises",
}
"""Every command, each in the module of its name, with its line of help."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


class _Version(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"drakkar {version('drakkar-core')}")  # noqa: T201
        raise SystemExit(0)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; their `run` is what the command does, `(arguments) -> exit status`.

    Raises `ConfigError` for wrong usage, and `SystemExit` when what was asked for has been printed.
    """
    parser = _Parser(
        prog="drakkar", description="A fleet of workers that see each other.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name, text in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
        )
        if argv and argv[0] == name:
            module = importlib.import_module(f"drakkar.cli.{name}")
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        # Named only as far as it is an option: what was typed at a wrong place may be a secret.
        name = unknown[0].partition("=")[0] if unknown[0].startswith("-") else ""
        help_ = f"drakkar {argv[0]} --help" if argv[0] in COMMANDS else "drakkar --help"
        what = f"there is no option {name}" if name else "there is an argument too many"
        raise ConfigError(f"{what}; see {help_}")
    if not hasattr(arguments, "run"):
        parser.print_help()
        raise SystemExit(2)
    return arguments

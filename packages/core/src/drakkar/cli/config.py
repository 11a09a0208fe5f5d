"""`drakkar config`: the settings in effect, without their secrets."""

import argparse
import os

import yaml

from drakkar.cli._options import add_json_option, add_settings_options, settings_from
from drakkar.cli._output import print_json
from drakkar.settings import Settings, masked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=["show", "check"],
        default="show",
        help="show: print them (default); check: only tell whether drakkar run would refuse"
        " them before it takes a port or touches a store",
    )
    add_settings_options(parser)
    add_json_option(parser, "the settings")


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    if arguments.action == "check":
        _check(settings)
        print("the settings are fine")  # noqa: T201
    elif arguments.json:
        print_json(masked(settings))
    else:
        print(yaml.safe_dump(masked(settings), sort_keys=False, allow_unicode=True), end="")  # noqa: T201
    return 0


def _check(settings: Settings) -> None:
    from drakkar.leadership import local_hint
    from drakkar.telemetry.logs import configure_logging, get_logger
    from drakkar.worker import choose_parts

    configure_logging("warning", "auto")
    logger = get_logger()
    backend = choose_parts(settings, os.environ, logger).backend
    if backend is not None and backend.local and settings.fleet.registry.provider != "none":
        logger.warning("lease_scope_local", hint=local_hint(settings))

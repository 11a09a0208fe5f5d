"""`drakkar providers`: what is installed, and what of it works."""

import argparse

from drakkar.cli._options import add_json_option
from drakkar.cli._output import print_json, print_table
from drakkar.fleet.plugins import ProviderInfo, scan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser, "the list")


def run(arguments: argparse.Namespace) -> int:
    providers = scan()
    if arguments.json:
        print_json([_row(provider) for provider in providers])
    else:
        rows = [_row(provider) for provider in providers]
        print_table(["name", "distribution", "version", "state"], rows)
    return 0


def _row(provider: ProviderInfo) -> dict[str, str | bool | None]:
    if provider.error is not None:
        state = f"does not load: {provider.error}"
    elif provider.chosen:
        state = "ok"
    else:
        state = "replaced: another distribution has this name and comes first"
    return {
        "name": provider.name,
        "distribution": provider.distribution,
        "version": provider.version,
        "state": state,
        "chosen": provider.chosen,
        "error": provider.error,
    }

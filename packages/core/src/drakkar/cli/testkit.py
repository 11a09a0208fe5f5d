"""`drakkar testkit`: run the checks of the test kit over an installed provider."""

import argparse
import asyncio
import importlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from drakkar.cli._options import add_json_option
from drakkar.cli._output import print_json
from drakkar.cli._signals import run_until_signal, unless
from drakkar.errors import ConfigError, DrakkarError
from drakkar.fleet.plugins import load_provider
from drakkar.fleet.provider import RegistryProvider
from drakkar.fleet.testkit import PUBLISHING_CHECKS, PublishingCheck
from drakkar.settings.text import one_line
from drakkar.telemetry.logs import get_logger

_PRUNE_AFTER_SECONDS: Final = 600.0


class _Store(Protocol):
    def make_provider(self) -> RegistryProvider: ...
    def advance(self, seconds: float) -> object: ...


_MakeStore = Callable[..., _Store]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the provider")
    parser.add_argument(
        "--options",
        metavar="JSON",
        help="its options, which tell where the store is; cards are written there, so not a live fleet's"
        " (filesystem needs none and takes a temporary folder)",
    )
    add_json_option(parser, "the results")


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments.options)
    make_store = _store_of(arguments.name)
    if options is None and arguments.name == "filesystem":
        with tempfile.TemporaryDirectory(prefix="drakkar-testkit-") as folder:
            options = {"dir": str(Path(folder) / "fleet"), "explicit": True}
            return _check(make_store, options, arguments.json)
    return _check(make_store, options or {}, arguments.json)


def _options(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise ConfigError("""--options must be a JSON object, such as '{"dir": "/mnt/fleet"}'""")
    return options


def _store_of(name: str) -> _MakeStore:
    """The `Store` of the `testing` module beside the provider's factory."""
    factory = load_provider(name, get_logger())
    module_name = f"{str(factory.__module__).partition('.')[0]}.testing"
    try:
        store: _MakeStore = importlib.import_module(module_name).Store
    except (ImportError, AttributeError) as error:
        reason = one_line(str(error), 500)
        needs = f"its package needs a module {module_name} with a class Store"
        raise ConfigError(f"{name} cannot be checked: {needs} ({reason})") from error
    return store


def _check(make_store: _MakeStore, options: Mapping[str, Any], as_json: bool) -> int:
    return run_until_signal(lambda stopping: _run_all(make_store, options, as_json, stopping))


async def _run_all(
    make_store: _MakeStore, options: Mapping[str, Any], as_json: bool, stopping: asyncio.Event
) -> int:
    results: list[dict[str, Any]] = []
    for check in PUBLISHING_CHECKS:
        result = await unless(stopping, _run_one(check, make_store, options))
        if result is None:
            raise DrakkarError(f"interrupted after {len(results)} of {len(PUBLISHING_CHECKS)} checks")
        results.append(result)
        if not as_json:
            print(_line(result), flush=True)  # noqa: T201
    if as_json:
        print_json(results)
    return 0 if all(result["passed"] for result in results) else 1


async def _run_one(
    check: PublishingCheck, make_store: _MakeStore, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Every check has a store object of its own; the store behind it may be the same one."""
    started = time.monotonic()
    error: str | None = None
    try:
        store = make_store(options, prune_after_seconds=_PRUNE_AFTER_SECONDS)
        await check(store.make_provider, store.advance, _PRUNE_AFTER_SECONDS)
    except AssertionError as failure:
        error = str(failure)
    except Exception as failure:  # noqa: BLE001 - a provider may raise anything, and that is a result
        error = f"{type(failure).__name__}: {failure}"
    return {
        "check": getattr(check, "__name__", "check"),
        "passed": error is None,
        "error": error,
        "seconds": round(time.monotonic() - started, 3),
    }


def _line(result: Mapping[str, Any]) -> str:
    if result["passed"]:
        return f"ok    {result['check']}"
    return f"FAIL  {result['check']}: {one_line(result['error'], 1000)}"

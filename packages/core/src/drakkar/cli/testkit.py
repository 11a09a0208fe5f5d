"""`drakkar testkit`: run the checks of the test kits over an installed provider."""

import argparse
import asyncio
import importlib
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol

from drakkar.cli._options import add_json_option
from drakkar.cli._output import print_json
from drakkar.cli._signals import run_until_signal, unless
from drakkar.errors import ConfigError, DrakkarError, UnavailableError, describe
from drakkar.fleet import testkit as cards
from drakkar.fleet.plugins import load_provider, make_product
from drakkar.fleet.provider import ProviderConfigError, RegistryProvider
from drakkar.leases import testkit as leases
from drakkar.leases.backend import LeaseBackend
from drakkar.settings.text import one_line
from drakkar.telemetry.logs import get_logger

_PRUNE_AFTER_SECONDS: Final = 600.0
_READING_CHECKS: Final = (cards.check_list_shape, cards.check_age_is_none_or_non_negative)


class _Store(Protocol):
    """What a package's module `testing` has. `publishes`, if there is one and it is false, says that its
    provider takes no cards."""

    def make_provider(self) -> RegistryProvider: ...
    def advance(self, seconds: float) -> object: ...

    # Of a package with leases:
    lease_ttl_seconds: float

    def make_lease_backend(self) -> LeaseBackend: ...
    def advance_leases(self, seconds: float) -> object: ...


_MakeStore = Callable[..., _Store]


@dataclass(frozen=True, slots=True)
class _Check:
    """One check, to be run over a store of its own; the store behind it may be the same one."""

    kit: str
    name: str
    run: Callable[[_Store], Awaitable[None]]
    skipped: str | None = None
    """Why it does not apply; None when it does."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the provider")
    parser.add_argument(
        "--options",
        metavar="JSON",
        help="its options, which tell where the store is, or @FILE for a file with them, where a password"
        " belongs; cards and leases are written there, so not a live fleet's (filesystem needs none and takes"
        " a temporary folder)",
    )
    parser.add_argument("--only", choices=["cards", "leases"], help="run one of the two kits (default: both)")
    add_json_option(parser, "the results")


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments.options)
    name, only, as_json = arguments.name, arguments.only, arguments.json
    if options is None and name == "filesystem":
        with tempfile.TemporaryDirectory(prefix="drakkar-testkit-") as folder:
            return _check(name, {"dir": str(Path(folder) / "fleet"), "explicit": True}, only, as_json)
    return _check(name, options or {}, only, as_json)


def _options(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        if text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        options = json.loads(text)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"--options: the file {one_line(text[1:])} cannot be read: {reason}") from error
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        wanted = """must be a JSON object, such as '{"dir": "/mnt/fleet"}', or @FILE for a file with one"""
        raise ConfigError(f"--options {wanted}")
    return options


def _check(name: str, options: Mapping[str, Any], only: str | None, as_json: bool) -> int:
    factory = load_provider(name, get_logger(), "NAME")
    module = f"{str(factory.__module__).partition('.')[0]}.testing"
    try:
        make_store: _MakeStore = importlib.import_module(module).Store
    except (ImportError, AttributeError) as error:
        needs = f"its package needs a module {module} with a class Store"
        raise ConfigError(f"{name} cannot be checked: {needs} ({one_line(str(error), 500)})") from error
    lease_backend: Any = getattr(factory, "lease_backend", None)
    has_leases = callable(lease_backend)
    if has_leases and only != "cards" and not hasattr(make_store, "make_lease_backend"):
        raise ConfigError(
            f"{name} has leases, but {module}.Store has no make_lease_backend; --only cards leaves them out"
        )
    if only == "leases" and not has_leases:
        raise ConfigError(f"{name} has no leases")
    # The factory first: whatever it refuses, it tells better than a store that takes options that hold.
    make_product(lease_backend if only == "leases" else factory, options, f"--options: {name}", ("start",))
    _make_once(f"{module}.Store", make_store, options, only)
    checks: list[_Check] = []
    if only != "leases":
        checks += _card_checks(name, publishes=getattr(make_store, "publishes", True))
    if only != "cards":
        why_none = None if has_leases else f"{name} has no leases"
        checks += _lease_checks(name, why_none, fenced=not has_leases or _is_fenced(make_store, options))
    return run_until_signal(lambda stopping: _run_all(checks, make_store, options, as_json, stopping))


def _make_once(label: str, make_store: _MakeStore, options: Mapping[str, Any], only: str | None) -> None:
    """Raises `ConfigError` when a store of options that hold cannot be made: one line, not one for each
    check. That it cannot be reached is for the first check to find."""
    try:
        store = make_store(options, prune_after_seconds=_PRUNE_AFTER_SECONDS)
        store.make_lease_backend() if only == "leases" else store.make_provider()
    except OSError:
        return
    except Exception as error:
        raise ConfigError(f"--options: {label} fails with them: {describe(error)}") from error


def _text_of(error: Exception) -> str:
    return describe(error).removeprefix(f"{type(error).__name__}: ")


def _card_checks(name: str, publishes: bool) -> Iterator[_Check]:
    for reading in _READING_CHECKS:

        async def read(store: _Store, check: Callable[..., Awaitable[None]] = reading) -> None:
            await check(store.make_provider(), cards.make_context("worker-1"))

        yield _Check("cards", reading.__name__, read)
    why_not = None if publishes else f"{name} publishes no cards"
    for publishing in cards.PUBLISHING_CHECKS:

        async def publish(store: _Store, check: cards.PublishingCheck = publishing) -> None:
            await check(store.make_provider, store.advance, _PRUNE_AFTER_SECONDS)

        yield _Check("cards", publishing.__name__, publish, why_not)


def _lease_checks(name: str, why_none: str | None, fenced: bool) -> Iterator[_Check]:
    for check in leases.LEASE_CHECKS:
        why_not = (
            None if fenced or check in leases.ASSIGNED_CHECKS else f"leases of {name} are assigned, not won"
        )

        async def lead(store: _Store, check: leases.LeaseCheck = check) -> None:
            await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)

        yield _Check("leases", check.__name__, lead, why_none or why_not)


def _is_fenced(make_store: _MakeStore, options: Mapping[str, Any]) -> bool:
    try:
        return make_store(options).make_lease_backend().fenced
    except Exception:  # noqa: BLE001  each check fails with the reason
        return True


async def _run_all(
    checks: Sequence[_Check],
    make_store: _MakeStore,
    options: Mapping[str, Any],
    as_json: bool,
    stopping: asyncio.Event,
) -> int:
    results: list[dict[str, Any]] = []
    for kit, group in groupby(checks, key=lambda check: check.kit):
        if not as_json:
            print(kit, flush=True)  # noqa: T201
        for check in group:
            is_first = all(result["passed"] is None for result in results)
            result = await unless(stopping, _run_one(check, make_store, options, is_first))
            if result is None:
                raise DrakkarError(f"interrupted after {len(results)} of {len(checks)} checks")
            results.append(result)
            if not as_json and result["passed"] is not None:
                print(_line(result), flush=True)  # noqa: T201
        skipped = [check.skipped for check in checks if check.kit == kit and check.skipped is not None]
        if skipped and not as_json:
            print(f"-     {len(skipped)} checks do not apply: {skipped[0]}")  # noqa: T201
    failed = sum(result["passed"] is False for result in results)
    if as_json:
        print_json(results)
    else:
        passed = sum(result["passed"] is True for result in results)
        print(f"{passed} passed, {failed} failed, {len(results) - passed - failed} do not apply")  # noqa: T201
    return 1 if failed else 0


async def _run_one(
    check: _Check, make_store: _MakeStore, options: Mapping[str, Any], is_first: bool
) -> dict[str, Any]:
    """Raises `ConfigError` or `UnavailableError` when the first check finds that the store refuses these
    options or cannot be reached: so the others would, too."""
    started = time.monotonic()
    error: str | None = None
    try:
        if check.skipped is None:
            await check.run(make_store(options, prune_after_seconds=_PRUNE_AFTER_SECONDS))
    except AssertionError as failure:
        error = str(failure)
    except Exception as failure:
        # A lease backend has no kind of error of its own for what can never work.
        refusal = ProviderConfigError if check.kit == "cards" else ValueError
        if is_first and isinstance(failure, refusal):
            raise ConfigError(f"--options: {_text_of(failure)}") from failure
        if is_first and isinstance(failure, OSError):
            raise UnavailableError(f"the store cannot be used: {_text_of(failure)}") from failure
        error = describe(failure)
    return {
        "kit": check.kit,
        "check": check.name,
        "passed": error is None if check.skipped is None else None,
        "error": error,
        "skipped": check.skipped,
        "seconds": round(time.monotonic() - started, 3),
    }


def _line(result: Mapping[str, Any]) -> str:
    if result["passed"]:
        return f"ok    {result['check']}"
    return f"FAIL  {result['check']}: {one_line(result['error'], 1000)}"

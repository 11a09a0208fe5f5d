"""`drakkar run`: one worker, until it is told to stop."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from drakkar.cli._entry import forget_output
from drakkar.cli._options import add_settings_options, settings_from
from drakkar.cli._signals import run_until_signal, unless
from drakkar.settings import Settings
from drakkar.settings.text import one_line

if TYPE_CHECKING:
    from drakkar.worker import Worker


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)
    parser.add_argument("--worker-name", metavar="NAME", help="name of this worker, unique in the fleet")
    parser.add_argument("--host", help="address to listen on (ui.host)")
    parser.add_argument("--port", help="port to listen on; 0 is any that is free (ui.port)")
    parser.add_argument("--provider", metavar="NAME", help="where the cards live (fleet.registry.provider)")
    parser.add_argument("--workers", metavar="A,B", help="background workers to run (supervisor.workers)")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    parser.add_argument(
        "--log-format",
        choices=["auto", "console", "json"],
        default="auto",
        help="auto: console on a terminal, else json (default)",
    )


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(
        arguments,
        worker_name=arguments.worker_name,
        ui__host=arguments.host,
        ui__port=arguments.port,
        fleet__registry__provider=arguments.provider,
        supervisor__workers=arguments.workers,
    )
    from drakkar.telemetry.logs import configure_logging

    configure_logging(arguments.log_level, arguments.log_format)
    return run_until_signal(lambda stopping: _serve(settings, stopping))


async def _serve(settings: Settings, stopping: asyncio.Event) -> int:
    from drakkar.worker import Worker  # here, since it takes longer to import than all that was done so far

    worker = Worker(settings)
    if not await unless(stopping, _start(worker)):
        return 0  # a start that is cancelled undoes what it did
    try:
        _announce(worker)
        await stopping.wait()
    finally:
        await worker.stop()
        if worker.unstopped:
            _leave_without(worker.unstopped)
    return 0


def _leave_without(names: Sequence[str]) -> NoReturn:
    """End the process on the spot: what would not end may be at work under leases that are running out."""
    logging.shutdown()
    told = one_line(", ".join(names), 500)
    print(f"drakkar: left without the end of {told}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(1)


async def _start(worker: "Worker") -> bool:
    await worker.start()
    return True


def _announce(worker: "Worker") -> None:
    where = "without a server" if worker.url is None else f"at {one_line(worker.url, 1000)}"
    try:
        print(f"{one_line(worker.name)} runs {where}", flush=True)  # noqa: T201
    except OSError:  # a worker does not end because nobody reads its first line
        forget_output()

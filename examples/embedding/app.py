"""A worker of the fleet inside a program that has an event loop, signal handling and logging of its own.

    python examples/embedding/app.py worker-1
    python examples/embedding/app.py worker-2        # in a second terminal

Ctrl-C or SIGTERM ends it: the job at hand is finished, then the worker takes its card back.
"""

import asyncio
import logging
import signal
import sys

from drakkar.errors import ConfigError, DrakkarError
from drakkar.settings import load_settings
from drakkar.worker import Worker

log = logging.getLogger("app")


async def do_jobs(stopping: asyncio.Event, worker: Worker) -> None:
    """What this program is really for; one job takes two seconds."""
    number = 0
    while not stopping.is_set():
        number += 1
        await asyncio.sleep(2)
        online = [peer.card["worker"] for peer in worker.peers() if peer.liveness == "online"]
        log.info("job %d done; other workers online: %s", number, ", ".join(online) or "none")


async def run(name: str) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)

    async with Worker(load_settings(overrides={"worker_name": name})) as worker:
        log.info("%s answers at %s", worker.name, worker.url)
        await do_jobs(stopping, worker)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    try:
        asyncio.run(run(sys.argv[1] if len(sys.argv) > 1 else ""))
    except DrakkarError as error:  # one line for a person, such as a setting that does not hold
        log.error("%s", error)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

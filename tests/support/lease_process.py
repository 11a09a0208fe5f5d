"""A process that wants the lease `gc`, renews it when it has it, and says one line for all that happens.

python lease_process.py WORKER TTL_SECONDS OPTIONS
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from drakkar.leases.backend import Held
from drakkar.leases.testkit import make_context
from drakkar_filesystem.leases import FilesystemLeases

NAME = "gc"


def say(what: str, token: int = 0) -> None:
    print(what, token, time.clock_gettime(time.CLOCK_BOOTTIME), time.time(), flush=True)


async def main(worker: str, ttl_seconds: float, options: dict[str, Any]) -> None:
    backend = FilesystemLeases(options)
    instance = os.urandom(8).hex()
    await backend.start(make_context(worker, instance, ttl_seconds=ttl_seconds, timeout_seconds=60))
    say("ready")
    while True:
        answer = await backend.acquire(NAME)
        if isinstance(answer, Held):
            left = answer.retry_after_seconds
            await backend.wait([NAME], 5 if left is None else left)
            continue
        say("won", answer.token)
        while True:
            await asyncio.sleep(ttl_seconds / 4)
            if answer in (await backend.renew([answer])).lost:
                break
            say("renewed", answer.token)
        say("lost", answer.token)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])))

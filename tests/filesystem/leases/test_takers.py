"""Twenty processes for one lease that has run out, some of them frozen between any two system calls."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from support.folders import Child, child
from support.lease_folders import LeaseFolder, granted

TAKERS = 20
FROZEN = 6
SCRIPT = Path(__file__).parents[2] / "support" / "lease_taker.py"
STEPS = 60
"""About as many system calls as a take-over is made of."""


class Taker:
    def __init__(self, process: Child) -> None:
        self.process = process
        self._inner = process._process

    def go_on(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._inner.pid, signal.SIGCONT)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._inner.pid, signal.SIGKILL)
        transport: asyncio.SubprocessTransport = self._inner._transport  # type: ignore[attr-defined]
        transport.close()


@pytest.fixture
async def takers(tmp_path: Path) -> AsyncIterator[list[Taker]]:
    async with AsyncExitStack() as stack:
        script = SCRIPT.read_text()
        takers = []
        for number in range(TAKERS):
            process = await stack.enter_async_context(child(script, tmp_path, f"worker-{number}"))
            takers.append(Taker(process))
        for taker in takers:
            stack.callback(taker.end)
        for taker in takers:
            assert await taker.process.line() == "ready"
        yield takers


@pytest.mark.timeout(2400)
async def test_one_of_twenty_takers_wins_each_time_and_every_token_is_given_once(
    tmp_path: Path, takers: list[Taker], long: bool
) -> None:
    fleet = LeaseFolder(tmp_path)
    before = await fleet.start("worker-99", "1", ttl_seconds=0.2, boot_id="another-host")
    chance = random.Random(17)
    for number in range(500 if long else 20):
        lease = await granted(before, f"round-{number}")
        answers = await one_round(takers, lease.name, lease.holder, chance)
        won = [answer.split()[1] for answer in answers if answer.startswith("won")]
        assert won == [str(lease.token + 1)], answers
        assert len({answer for answer in answers if answer.startswith("refused")}) == 1, answers
        assert fleet.generations(lease.name) == [lease.token + 1]
    await fleet.stop()


async def one_round(takers: list[Taker], name: str, holder: str, chance: random.Random) -> list[str]:
    frozen = set(chance.sample(range(TAKERS), FROZEN))
    for number, taker in enumerate(takers):
        await taker.process.answer(f"{name} {holder} {chance.randint(1, STEPS) if number in frozen else 0}")
    answers = [asyncio.create_task(taker.process.line()) for taker in takers]
    # A winner may be among the frozen, and then the others have to wait for nobody.
    await asyncio.wait([answers[number] for number in range(TAKERS) if number not in frozen])
    thaw = list(frozen)
    chance.shuffle(thaw)
    for number in thaw:
        takers[number].go_on()
        await asyncio.wait({answers[number]}, timeout=chance.choice([0, 0.01, 0.05]))
    for number in thaw:
        while not answers[number].done():  # it may have come to its system call only now
            takers[number].go_on()
            await asyncio.wait({answers[number]}, timeout=0.05)
    return [await answer for answer in answers]

"""Keepers in a world that does its worst, and what they keep to all the same.

Hypothesis plays the nemesis: it delays and loses requests and replies, pauses and kills processes, cancels in
mid-air, tampers with records. `support.lease_world` looks on after every event.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from support.lease_world import (
    OPERATIONS,
    TIMING,
    TTL,
    Fault,
    PlainServer,
    Process,
    Server,
    SessionServer,
    World,
)

WORKERS: Final = 2
NAMES: Final = ("gc-leader", "lifecycle-leader")
QUIET_SECONDS: Final = 40.0
"""After which every delay that an outage left behind is over."""

STOP_SECONDS: Final = 15.0
FOR_EVER: Final = 10000.0
"""What a run takes to end that would not end."""

process_numbers = st.integers(0, WORKERS - 1)
names = st.sampled_from(NAMES)
moments = st.sampled_from((0.0, 0.05, 0.4, 1.2, 2.3, 3.7, 5.9, 7.0))
deeds = st.sampled_from(("want", "finish", "begin again", "give up"))
cleanups = st.sampled_from((0.0, 0.7, 4.1, FOR_EVER))
operations = st.one_of(st.just(set(OPERATIONS)), st.sets(st.sampled_from(OPERATIONS), min_size=1))
faults = st.sampled_from(
    (
        *(Fault(request_seconds=seconds) for seconds in (0.37, 1.13, 4.3)),
        *(Fault(reply_seconds=seconds) for seconds in (0.53, 1.27, 5.1)),
        *(Fault(refused=True), Fault(request_lost=True), Fault(reply_lost=True), Fault(reply_failed=True)),
        *(Fault(request_seconds=1.13, reply_lost=True), Fault(request_seconds=0.37, reply_failed=True)),
    )
)


class Nemesis(RuleBasedStateMachine):
    make_server: Callable[..., Server]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.run(self._begin())
        self.processes: dict[int, Process] = {}
        for number in range(WORKERS):
            self.start_another(number)

    def run(self, doing: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(doing)

    async def _begin(self) -> None:
        self.world = World(type(self).make_server)

    def do(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()
            await self.world.settle()

        self.run(act())

    def active(self, number: int) -> Process | None:
        process = self.processes[number]
        return None if process.paused or process.stopping is not None else process

    def act(self, deed: str, number: int, name: str, cleanup_seconds: float) -> None:
        """What happens to one who wants or has the lease, or to one more."""
        process = self.active(number)
        if process is None:
            return
        jobs = [job for job in process.jobs if job.name == name and not job.over]
        for job in jobs:
            if deed in ("finish", "begin again") and not job.asking and not job.finish.is_set():
                job.again, job.cleanup_seconds = deed == "begin again", cleanup_seconds
                self.do(job.finish.set)
            elif deed == "give up":
                self.do(job.give_up)
        if deed == "want" and len(jobs) < 2:
            self.do(lambda: process.want(name, cleanup_seconds, again=True))

    @rule(number=process_numbers, name=names, deed=deeds, cleanup_seconds=cleanups, seconds=moments)
    def deed(self, number: int, name: str, deed: str, cleanup_seconds: float, seconds: float) -> None:
        self.act(deed, number, name, cleanup_seconds)
        self.advance(seconds)

    @rule(
        number=process_numbers,
        operations=operations,
        fault=faults,
        deed=deeds,
        name=names,
        cleanup_seconds=cleanups,
        trouble_seconds=moments,
        seconds=moments,
    )
    def deed_in_trouble(
        self,
        number: int,
        operations: set[str],
        fault: Fault,
        deed: str,
        name: str,
        cleanup_seconds: float,
        trouble_seconds: float,
        seconds: float,
    ) -> None:
        self.processes[number].faults.update(dict.fromkeys(operations, fault))
        self.act(deed, number, name, cleanup_seconds)
        self.advance(trouble_seconds)
        self.processes[number].faults.clear()
        self.advance(seconds)

    @rule(number=process_numbers, operations=operations, fault=faults, seconds=moments)
    def disturb(self, number: int, operations: set[str], fault: Fault, seconds: float) -> None:
        self.processes[number].faults.update(dict.fromkeys(operations, fault))
        self.advance(seconds)

    @rule(number=process_numbers, name=names, turns=st.integers(1, 12), twice=st.booleans(), seconds=moments)
    def ambush(self, number: int, name: str, turns: int, twice: bool, seconds: float) -> None:
        """Cancel whoever asks for a lease, some turns of the loop after the next event."""
        process = self.active(number)
        jobs = [job for job in process.jobs if job.name == name] if process is not None else []

        def give_up() -> None:
            for job in jobs:
                job.give_up()

        def strike() -> None:
            give_up()
            if twice:
                self.world.ambush = (1, give_up)

        self.world.ambush = (turns, strike)
        self.advance(seconds)

    @rule(
        number=process_numbers,
        in_a_call=st.booleans(),
        asleep_seconds=st.sampled_from((0.9, 3.1, 5.5, 7.3, 15.0)),
        first=st.sampled_from(("timers", "replies", "both")),
        seconds=moments,
    )
    def pause(self, number: int, in_a_call: bool, asleep_seconds: float, first: str, seconds: float) -> None:
        process = self.active(number)
        if process is not None:
            if in_a_call:
                process.faults.update(renew=Fault(reply_seconds=1.27), acquire=Fault(reply_seconds=1.27))
                self.advance(TIMING.period_seconds + 1.0)
            process.pause()
            self.advance(asleep_seconds)
            self.run(process.resume(first))
            self.advance(seconds)

    @rule(number=process_numbers, seconds=moments)
    def kill(self, number: int, seconds: float) -> None:
        self.processes[number].kill()
        self.start_another(number)
        self.advance(seconds)

    @rule(number=process_numbers, patient=st.booleans(), seconds=moments)
    def stop(self, number: int, patient: bool, seconds: float) -> None:
        process = self.active(number)
        if process is not None:
            endless = any(job.cleanup_seconds == FOR_EVER for job in process.jobs)
            self.do(lambda: process.stop(patient and not endless))
            self.start_another(number)
        self.advance(seconds)

    @rule(name=names, how=st.sampled_from(("delete", "overwrite", "garbage")), seconds=moments)
    def tamper(self, name: str, how: str, seconds: float) -> None:
        async def tamper() -> None:
            await self.world.tamper(name, how)
            await self.world.settle()

        self.run(tamper())
        self.advance(seconds)

    def start_another(self, number: int) -> None:
        def start() -> None:
            self.processes[number] = process = self.world.process(f"worker-{number}")
            process.want(f"own-{number}", again=True)  # keeps a session of the store alive
            for name in NAMES:
                process.want(name, cleanup_seconds=4.1 if name == NAMES[-1] else 0.0, again=True)

        self.do(start)

    def advance(self, seconds: float) -> None:
        self.run(self.world.advance(seconds))

    def teardown(self) -> None:
        try:
            self.run(self._end_well())
        finally:
            self.run(_cancel_all())
            self.loop.close()

    async def _end_well(self) -> None:
        """When the nemesis rests, nobody is left with a lease that he does not work under."""
        world = self.world
        world.ambush = None
        living = [process for process in world.processes if not process.dead]
        for process in living:
            for job in process.jobs:
                if job.name in NAMES:
                    job.end()
        await world.advance(0.7 * TTL)
        for process in living:
            process.faults.clear()
        await world.advance(QUIET_SECONDS)
        for process in living:
            for job in process.jobs:
                expected = job.over or job.name not in NAMES or job.cleanup_seconds == FOR_EVER
                assert expected, f"a job for {job.name} did not end"
            assert process.stopping is None or process.stopping.done(), "a stop did not end"
            assert process.log.named("lease_loop_failed") == []
        fresh = world.process("worker-9")
        jobs = [fresh.want(name) for name in NAMES]
        await world.advance(2 * TTL + 2 * TIMING.retry_seconds if world.garbage else 0.1)
        for job in jobs:
            assert not job.asking, f"{job.name} is stuck"
        for process in [*living, fresh]:
            if process.stopping is None:
                process.stop(patient=False)
        await world.advance(STOP_SECONDS)
        for process in [*living, fresh]:
            assert process.stopping is not None
            assert process.stopping.done(), "a stop did not end"
            process.stopping.result()


class PlainNemesis(Nemesis):
    make_server = PlainServer


class SessionNemesis(Nemesis):
    make_server = SessionServer


@pytest.mark.timeout(900)  # a failure is made small before it is shown
@pytest.mark.parametrize("machine", [PlainNemesis, SessionNemesis])
def test_it_never_has_two_leaders_nor_a_stuck_lease(machine: type[Nemesis]) -> None:
    """Trials: the renewal call outlives the lease; renewing a lease that is gone counts as success; the lease
    is released before the work has stopped; cancelling the release strands the lock; and more at once."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def _cancel_all() -> None:
    current = asyncio.current_task()
    for _ in range(3):
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

"""Leases that are assigned: who owns which, and the checks of such backends, where all are one worker's."""

import asyncio
from typing import Any

import pytest
from drakkar.leases import testkit
from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo
from drakkar_static import make_registry
from drakkar_static.testing import Store
from support.log import RecordingLogger


@pytest.mark.parametrize("check", testkit.ASSIGNED_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_assigned_leases(check: testkit.LeaseCheck) -> None:
    store = Store({})
    await check(store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)


PEERS = [{"name": f"worker-{number}", "url": f"http://10.0.0.{number}/"} for number in (1, 2)]


@pytest.mark.parametrize(
    ("worker", "options", "warned"),
    [
        ("worker-3", {"peers": PEERS}, True),
        ("worker-3", {"assignments": {"*": "worker-1"}}, True),
        ("worker-1", {"peers": PEERS}, False),
        ("worker-3", {"peers": PEERS, "assignments": {"gc-*": "worker-3"}}, False),
        ("worker-3", {}, False),
    ],
)
async def test_a_worker_that_nothing_is_assigned_to_is_warned_of_at_its_start(
    worker: str, options: dict[str, Any], warned: bool
) -> None:
    log = RecordingLogger()
    await make_registry.lease_backend(options).start(LeaseContext(worker, "1", "", log))

    told = log.named("lease_worker_not_listed")
    assert [line["worker"] for line in told] == [worker] * warned
    assert all("fleet.registry.static.peers" in line["hint"] for line in told)


async def started(worker: str, options: dict[str, Any]) -> LeaseBackend:
    backend: LeaseBackend = make_registry.lease_backend(options)
    await backend.start(testkit.make_context(worker))
    return backend


async def owners(workers: int, names: list[str]) -> dict[str, str]:
    """Who is granted each of `names`, by asking all of a fleet in which each lists all."""
    peers = [{"name": f"worker-{n}", "url": f"http://10.0.0.{n}/"} for n in range(1, workers + 1)]
    found: dict[str, str] = {}
    for peer in peers:
        backend = await started(peer["name"], {"peers": peers})
        for name in names:
            if isinstance(await backend.acquire(name), Lease):
                assert name not in found
                found[name] = peer["name"]
    assert found.keys() == set(names)
    return found


async def test_the_first_pattern_that_matches_says_whose_it_is() -> None:
    assignments = {"gc-leader-[01]": "worker-2", "gc-*": "worker-1", "*": "worker-3"}
    of = {name: await started(name, {"assignments": assignments}) for name in ("worker-1", "worker-2")}
    for name, owner in (
        ("gc-leader-0", "worker-2"),
        ("gc-leader-2", "worker-1"),
        ("GC-leader-0", "worker-3"),
        ("report-leader", "worker-3"),
    ):
        for worker, backend in of.items():
            answer = await backend.acquire(name)
            assert answer == Held(owner) or (worker == owner and isinstance(answer, Lease))


async def test_without_a_pattern_each_name_is_one_workers_and_each_worker_has_some() -> None:
    found = await owners(3, [f"gc-leader-{number}" for number in range(60)])
    assert {list(found.values()).count(f"worker-{n}") >= 10 for n in (1, 2, 3)} == {True}


async def test_a_further_worker_moves_only_the_names_that_it_gets() -> None:
    names = [f"gc-leader-{number}" for number in range(60)]
    before, after = await owners(3, names), await owners(4, names)
    assert {after[name] for name in names if after[name] != before[name]} == {"worker-4"}


async def test_the_owner_of_a_name_is_the_same_in_every_version() -> None:
    """Two that disagree would both lead."""
    names = [f"gc-leader-{number}" for number in range(6)]
    found = await owners(3, names)
    assert "".join(found[name][-1] for name in names) == "312121"


async def test_an_assignment_is_shown_and_outlives_a_release() -> None:
    """There is no fail-over: nobody else gets it, whatever becomes of its owner."""
    options = {"assignments": {"gc-*": "worker-1", "*": "worker-2"}}
    mine, other = await started("worker-1", options), await started("worker-2", options)
    lease = await mine.acquire("gc-leader")
    assert isinstance(lease, Lease)
    await mine.release("gc-leader", lease.token)
    assert await other.acquire("gc-leader") == Held("worker-1")
    assert (await mine.renew([lease])).kept == (lease,)
    await other.acquire("report-leader")
    assert await other.list() == [
        LeaseInfo("gc-leader", "worker-1", 1, None, None),
        LeaseInfo("report-leader", "worker-2", 1, None, None),
    ]


async def test_waiting_for_an_assignment_takes_its_time() -> None:
    backend = await started("worker-2", {"assignments": {"*": "worker-1"}})
    began = asyncio.get_running_loop().time()
    assert await backend.wait(frozenset({"gc-leader"}), 0.05) == frozenset()
    assert asyncio.get_running_loop().time() - began >= 0.04


@pytest.mark.parametrize(
    ("assignments", "told"),
    [
        (["gc-*"], "must map lease names to worker names, not be list"),
        ({"": "worker-1"}, "has a lease name that is no text: ''"),
        ({1: "worker-1"}, "has a lease name that is no text: 1"),
        ({"gc-*": ""}, "['gc-*'] must be a worker name"),
        ({"gc-*": ["worker-1"]}, "['gc-*'] must be a worker name"),
    ],
)
def test_assignments_that_do_not_hold_are_refused_with_their_key(assignments: object, told: str) -> None:
    with pytest.raises(ValueError, match=r"^supervisor\.leases\.plugin_options\.assignments") as caught:
        make_registry.lease_backend({"assignments": assignments})
    assert str(caught.value).endswith(told)

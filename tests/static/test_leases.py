"""The checks of lease backends that assign, over assignments that are all to one worker."""

from typing import Any

import pytest
from drakkar.leases import testkit
from drakkar.leases.backend import LeaseContext
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

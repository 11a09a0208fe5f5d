"""A server that grants more than was asked for."""

import time
from pathlib import Path

from drakkar.leases.backend import Held, Lease
from support.etcd_servers import single
from support.etcd_workers import Workers
from support.log import RecordingLogger

ONE_SERVER_IN_A_GATE = True


async def test_what_the_server_grants_counts_and_not_what_was_asked_for(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    # The shortest lease of an etcd is one and a half of its election time-outs.
    with single(tmp_path, program, "--election-timeout=2600") as server:
        log = RecordingLogger()
        given = {"endpoints": [server.endpoint]}
        one = await workers.leases("worker-1", given, ttl_seconds=2, logger=log)
        two = await workers.leases("worker-2", given, ttl_seconds=2)
        asked_at = time.monotonic()
        lease = await one.acquire("gc-leader")

        assert isinstance(lease, Lease)
        assert lease.ttl_seconds == 4
        assert log.named("lease_ttl_raised") == [{"asked": 2, "granted": 4.0}]
        assert [kept.ttl_seconds for kept in (await one.renew([lease])).kept] == [4]
        (row,) = await one.list()
        assert 2 < (row.remaining_seconds or 0) <= 4
        refusal = await two.acquire("gc-leader")
        assert isinstance(refusal, Held)
        assert refusal.retry_after_seconds == 4
        while isinstance(await two.acquire("gc-leader"), Held):
            await two.wait(["gc-leader"], 10)
        assert time.monotonic() - asked_at >= 4

"""Users and roles: logins that are refused, that expire, and that may not do everything."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.provider import ProviderConfigError
from drakkar.fleet.testkit import make_card
from drakkar.leases.backend import Lease
from drakkar_etcd._answers import EtcdError
from support.etcd_servers import Etcd, single, with_users
from support.etcd_workers import Workers
from support.log import RecordingLogger

PREFIX = "/fleet"
TOKEN_SECONDS = 1
QUICK = (f"--auth-token-ttl={TOKEN_SECONDS}", "--bcrypt-cost=4")


@pytest.fixture(scope="module")
def server(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with with_users(tmp_path_factory.mktemp(program), f"{PREFIX}/", program, *QUICK) as server:
        yield server


def options(server: Etcd, **more: Any) -> dict[str, Any]:
    return {
        "endpoints": [server.endpoint],
        "prefix": PREFIX,
        "username": "fleet",
        "password": "fleet",
        **more,
    }


async def test_a_user_who_may_use_the_prefix_alone_has_cards_and_leases(
    server: Etcd, workers: Workers
) -> None:
    registry = await workers.registry("worker-1", options(server))
    leases = await workers.leases("worker-1", options(server))
    await registry.publish(make_card("worker-1"))
    lease = await leases.acquire("gc-leader")

    assert isinstance(lease, Lease)
    assert len((await leases.renew([lease])).kept) == 1
    assert [peer.card["worker"] for peer in await registry.list()] == ["worker-1"]
    async with asyncio.timeout(20):
        while (await registry.list())[0].age_seconds is None:  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.05)
    await leases.release("gc-leader", lease.token)
    await registry.withdraw("worker-1", make_card("worker-1")["instance"])


async def test_a_login_that_expired_is_renewed_once_for_all_who_need_it(
    server: Etcd, workers: Workers
) -> None:
    leases = await workers.leases("worker-1", options(server))
    # A token lives on while it is used, so nothing is asked meanwhile; it is looked for once a second.
    await asyncio.sleep(2.5 * TOKEN_SECONDS + 1)
    before = server.requests("Authenticate")

    answers = await asyncio.gather(*(leases.acquire(f"job-leader-{number}") for number in range(50)))

    assert all(isinstance(answer, Lease) for answer in answers)
    assert server.requests("Authenticate") - before == 1


async def test_a_restart_that_forgets_all_logins_is_not_noticed(server: Etcd, workers: Workers) -> None:
    registry = await workers.registry("worker-1", options(server))
    await registry.publish(make_card("worker-1"))
    server.kill()
    server.start()

    async with asyncio.timeout(30):
        while True:
            try:
                await registry.publish(make_card("worker-1", x=1))
                break
            except OSError:
                await asyncio.sleep(0.1)
    assert [peer.card["x"] for peer in await registry.list()] == [1]


async def test_a_wrong_password_is_told_in_one_line_at_the_start_and_not_shown(
    server: Etcd, workers: Workers
) -> None:
    wrong = options(server, password="hunter-2")
    log = RecordingLogger()

    with pytest.raises(ProviderConfigError) as refused:
        await workers.registry("worker-1", wrong, logger=log)
    with pytest.raises(EtcdError) as failed:
        await workers.leases("worker-1", wrong, logger=log)

    assert str(refused.value).startswith("fleet.registry.etcd.username: the login was refused: etcd: ")
    assert "\n" not in str(refused.value)
    for text in (str(refused.value), repr(failed.value), repr(log.lines)):
        assert "hunter-2" not in text


async def test_a_password_that_was_changed_meanwhile_is_told_with_its_option(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    with with_users(tmp_path / "changed", f"{PREFIX}/", program, *QUICK) as server:
        registry = await workers.registry("worker-1", options(server))
        root = server.call("/auth/authenticate", {"name": "root", "password": "root"})["token"]
        server.call("/auth/user/changepw", {"name": "fleet", "password": "hunter-2"}, root)

        with pytest.raises(EtcdError, match=r"authentication failed.*; see \S+ and \S+\.password\)$"):
            await registry.publish(make_card("worker-1"))


async def test_a_wrong_password_costs_one_login_however_many_calls_wait_for_it(
    server: Etcd, workers: Workers
) -> None:
    leases = await workers.leases("worker-1", options(server))
    leases._client._login.token = None
    object.__setattr__(leases._client._settings, "password", "hunter-2")
    before = server.requests("Authenticate")

    answers = await asyncio.gather(
        *(leases.acquire(f"job-leader-{number}") for number in range(20)), return_exceptions=True
    )

    assert all(isinstance(answer, EtcdError) for answer in answers)
    assert server.requests("Authenticate") - before == 1


async def test_what_the_user_may_not_read_is_an_error_and_no_empty_list(
    server: Etcd, workers: Workers
) -> None:
    registry = await workers.registry("worker-1", options(server, prefix="/other"))
    for call in (registry.list, lambda: registry.publish(make_card("worker-1"))):
        with pytest.raises(EtcdError, match="permission denied") as refused:
            await call()
        assert server.endpoint in str(refused.value)
        assert str(refused.value).endswith("needs the right to read and write below /other/)")


async def test_without_a_user_a_server_that_has_them_is_told_at_the_start(
    server: Etcd, workers: Workers
) -> None:
    given = {"endpoints": [server.endpoint], "prefix": PREFIX}

    with pytest.raises(ProviderConfigError, match=r"^fleet\.registry\.etcd\.username is missing: \S"):
        await workers.registry("worker-1", given)
    with pytest.raises(EtcdError, match=r"wants fleet\.registry\.etcd\.username"):
        await workers.leases("worker-1", given)


async def test_a_user_at_a_server_that_has_none_does_no_harm(
    tmp_path: Path, workers: Workers, program: str
) -> None:
    with single(tmp_path / "open", program) as server:
        registry = await workers.registry("worker-1", options(server))
        await registry.publish(make_card("worker-1"))
        assert len(await registry.list()) == 1

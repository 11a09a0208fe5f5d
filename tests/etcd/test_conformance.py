"""The checks of every provider and every lease backend, over a real server."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from drakkar.fleet import testkit
from drakkar.leases import testkit as lease_testkit
from drakkar_etcd.testing import Store
from support.etcd_servers import PROGRAMS, single
from support.side_by_side import side_by_side

READING = [testkit.check_list_shape, testkit.check_age_is_none_or_non_negative]


@pytest.mark.parametrize("check", testkit.PUBLISHING_CHECKS, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_publishing(check: testkit.PublishingCheck, store: Store) -> None:
    await check(store.make_provider, store.advance, 600)


@pytest.mark.parametrize("check", READING, ids=lambda check: check.__name__)
async def test_it_passes_the_checks_of_reading(
    check: Callable[..., Coroutine[Any, Any, None]], store: Store
) -> None:
    await check(store.make_provider(), testkit.make_context("worker-1"))


@pytest.fixture(scope="session")
def lease_checks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[pytest.Item], None]]:
    with ExitStack() as stack:
        servers = {
            program: stack.enter_context(single(tmp_path_factory.mktemp(program), program))
            for program in PROGRAMS
        }

        async def play(params: Mapping[str, Any]) -> None:
            store = Store({"endpoints": [servers[params["program"]].endpoint]})
            await params["check"](store.make_lease_backend, store.advance_leases, store.lease_ttl_seconds)

        yield stack.enter_context(side_by_side(request, test_it_passes_the_checks_of_leases.__name__, play))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("check", lease_testkit.LEASE_CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_checks_of_leases(
    request: pytest.FixtureRequest,
    lease_checks: Callable[[pytest.Item], None],
    program: str,
    check: lease_testkit.LeaseCheck,
) -> None:
    lease_checks(request.node)

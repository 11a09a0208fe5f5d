"""Servers that the tests of one run share, and a part of them for each test."""

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from drakkar_etcd.testing import Store
from support.etcd_servers import PROGRAMS, Etcd, single
from support.etcd_workers import MakeBackend, MakeRegistry, Workers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of what does not differ from server to server, and takes its time, run over the first one alone
    in a gate: those of a module that says `ONE_SERVER_IN_A_GATE`."""
    if config.getoption("--long"):
        return
    left_out = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and hasattr(item.module, "ONE_SERVER_IN_A_GATE")
        and any(str(param) in PROGRAMS[1:] for param in _params(item))
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", params=PROGRAMS)
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """A member that is never hurt: once for each server that this machine has."""
    with single(tmp_path_factory.mktemp(request.param), request.param) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """What the keys of one test begin with."""
    return f"/{secrets.token_hex(4)}"


@pytest.fixture
def options(etcd: Etcd, prefix: str) -> dict[str, object]:
    return {"endpoints": [etcd.endpoint], "prefix": prefix}


@pytest.fixture
def store(options: dict[str, object]) -> Store:
    return Store(options)


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    """What they make is stopped in the end."""
    made = Workers()
    yield made
    await made.stop()


@pytest.fixture
def registry(workers: Workers, options: dict[str, object]) -> MakeRegistry:
    """Started registries, by worker and, where it is not the server itself, endpoint."""

    async def make(worker: str, endpoint: str | None = None, **context: Any) -> EtcdRegistry:
        return await workers.registry(worker, _at(endpoint, options), **context)

    return make


@pytest.fixture
def backend(workers: Workers, options: dict[str, object]) -> MakeBackend:
    """Started lease backends, in the same way."""

    async def make(worker: str, endpoint: str | None = None, **context: Any) -> EtcdLeases:
        return await workers.leases(worker, _at(endpoint, options), **context)

    return make


def _at(endpoint: str | None, options: dict[str, object]) -> dict[str, object]:
    return options if endpoint is None else {**options, "endpoints": [endpoint]}


def _params(item: pytest.Function) -> Iterable[object]:
    return item.callspec.params.values() if hasattr(item, "callspec") else ()

"""Servers that the tests of one run share, and a part of them for each test."""

import secrets
from collections.abc import Iterator

import pytest
from drakkar_etcd.testing import Store
from support.etcd_servers import PROGRAMS, Etcd, single


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

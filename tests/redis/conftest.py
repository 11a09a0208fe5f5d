"""One server for all tests of a session that leave it running; each test begins with an empty one."""

from collections.abc import Iterator

import pytest
from support.redis_servers import RedisServer, redis_server


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
def server(session_server: RedisServer) -> RedisServer:
    """A server without any data. Do not stop it."""
    session_server.command("FLUSHALL")
    return session_server

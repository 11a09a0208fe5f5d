"""Each test has a server of its own to hurt."""

import pytest
from support.etcd_servers import PROGRAMS


@pytest.fixture(scope="session", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)

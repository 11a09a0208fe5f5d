"""Options of every test run."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="repeat what is repeated as often as it should be")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether to take the time that a gate has not."""
    return bool(request.config.getoption("--long"))

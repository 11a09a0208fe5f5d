"""Options of every test run."""

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="repeat what is repeated as often as it should be")


def pytest_configure(config: pytest.Config) -> None:
    # The gate takes the same generated examples each time, so that it decides about the change and not about
    # luck, and no example has a time limit: the machine may be busy. `--long` looks for new ones.
    settings.register_profile("gate", derandomize=True, deadline=None)
    settings.register_profile("long", deadline=None)
    settings.load_profile("long" if config.getoption("--long") else "gate")


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether to take the time that a gate has not."""
    return bool(request.config.getoption("--long"))

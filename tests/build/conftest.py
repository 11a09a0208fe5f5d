"""The packages, built once for all tests of this folder as a release builds them."""

import pytest
from support.building import Built, build
from support.repository import PACKAGES


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    """The wheel and the source archive of every package, by the name of its folder.

    The wheel is made from the source archive, so an archive that lacks something fails here.
    """
    return {package.name: build(package, tmp_path_factory.mktemp(package.name)) for package in PACKAGES}

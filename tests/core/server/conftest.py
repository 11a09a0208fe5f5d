from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scripted import Script, scripted_plugin


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """The store behind the provider `scripted`."""
    with scripted_plugin(tmp_path, monkeypatch) as script:
        yield script

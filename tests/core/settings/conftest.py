"""Settings as a process would read them, from a file and variables of the test's own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    return tmp_path / "drakkar.yaml"


@pytest.fixture
def load(settings_file: Path) -> Callable[..., Settings]:
    """Load settings from the text of a file, and variables and overrides, none unless given."""

    def load(
        text: str | bytes = "",
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, str | float] | None = None,
    ) -> Settings:
        settings_file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_settings(settings_file, environ=environ or {}, overrides=overrides)

    return load


@pytest.fixture
def refusal(load: Callable[..., Settings]) -> Callable[..., str]:
    """The message with which settings are refused, which is one printable line."""

    def refusal(
        text: str | bytes = "",
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, str | float] | None = None,
    ) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, environ, overrides)
        message = str(caught.value)
        assert message.isprintable()
        assert "hidden" not in message  # what tests use for secrets
        return message

    return refusal

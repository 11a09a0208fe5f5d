"""Whatever is read gives settings, or one line that says what is wrong; never anything else."""

import json
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings, masked
from drakkar.settings._environment import variable
from drakkar.settings._keys import known_keys
from drakkar.settings.resolve import config_summary, provider_options, registry_folder, spans_hosts
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

KEYS = known_keys()
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
likely = st.sampled_from(
    ["", "0", "1", "30", "true", "none", "[]", "{}", "null", "http://a/", '{"a": 1}', "[::1]:80"]
)
part = st.sampled_from(sorted({name for key in KEYS for name in key.split(".")})) | st.text(max_size=6)
key = st.sampled_from(KEYS) | st.lists(part, min_size=1, max_size=5).map(".".join)
surrogates = st.text(st.characters(), max_size=20)  # also the lone ones, as os.environ has them
variable_name = (
    key.map(lambda name: variable(tuple(name.split("."))))
    | surrogates.map(lambda text: f"DK_{text}")
    | st.text(string.ascii_letters + "_", max_size=12).map(lambda text: f"DK_UI__{text}")
    | surrogates
)
environments = st.dictionaries(variable_name, likely | surrogates | anything.map(repr), max_size=4)
overrides = st.dictionaries(key | surrogates, likely | surrogates, max_size=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings") / "drakkar.yaml"


@contextmanager
def gives_settings_or_one_line() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        message = str(error)
        assert message
        assert message.isprintable()
        assert len(message) < 3000
        message.encode()


def use(loaded: Settings) -> None:
    """What a worker and the commands do with settings."""
    json.dumps(masked(loaded))
    yaml.safe_dump(masked(loaded), allow_unicode=True).encode()
    provider_options(loaded)
    registry_folder(loaded)
    assert config_summary(loaded)
    assert spans_hosts(loaded) in (True, False)
    assert Settings.model_validate(loaded.model_dump()) == loaded


def nest(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for dotted, value in pairs:
        inside = data
        *sections, last = dotted.split(".")
        for section in sections:
            if not isinstance(inside.get(section), dict):
                inside[section] = {}
            inside = inside[section]
        inside[last] = value
    return data


many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(data=st.binary(max_size=200))
@example(data=b"\xff")
@example(data=b"a: !!timestamp x")
@example(data=b"? ")
@example(data=b"? {? a}: b")
def test_any_bytes(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    with gives_settings_or_one_line():
        use(load_settings(file, environ={}))


yaml_signs = st.text(st.sampled_from("{}[]:,-?!&*|>'\"%@`#~ \n\tabui0.\\<=\x85\u2028\ufeff"), max_size=60)


@many
@given(text=yaml_signs | st.text(max_size=60))
def test_any_text(text: str, file: Path) -> None:
    file.write_bytes(text.encode(errors="surrogatepass"))
    with gives_settings_or_one_line():
        use(load_settings(file, environ={}))


@many
@given(pairs=st.lists(st.tuples(key, anything), max_size=5))
@example(pairs=[("ui.port", 10**5000)])
@example(pairs=[("fleet.registry.redis", {"a": {"b": [float("nan")]}})])
def test_any_map(pairs: list[tuple[str, Any]], file: Path) -> None:
    try:
        text = yaml.safe_dump(nest(pairs))
    except ValueError:  # an integer that Python does not write
        return
    file.write_bytes(text.encode(errors="surrogatepass"))
    with gives_settings_or_one_line():
        use(load_settings(file, environ={}))


@many
@given(environ=environments, more=overrides)
@example(environ={"DK_UI": "[" * 100_000}, more={})
@example(environ={"DK_UI__\udcff": "\udcff"}, more={})
@example(environ={"DK_FLEET__REGISTRY__REDIS__A": "\ud800"}, more={})
@example(environ={"DK_FLEET__REGISTRY__PROVIDER": "a", "DK_FLEET__REGISTRY__A__B": "1"}, more={"": ""})
def test_any_environment_and_overrides(environ: dict[str, str], more: dict[str, str]) -> None:
    with gives_settings_or_one_line():
        use(load_settings(environ=environ, overrides=more))


@many
@given(pairs=st.lists(st.tuples(key, anything), max_size=3), environ=environments)
def test_any_environment_on_any_map(
    pairs: list[tuple[str, Any]], environ: dict[str, str], file: Path
) -> None:
    file.write_bytes(yaml.safe_dump(nest(pairs)).encode(errors="surrogatepass"))
    with gives_settings_or_one_line():
        use(load_settings(file, environ=environ))

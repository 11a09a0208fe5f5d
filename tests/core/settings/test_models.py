"""Which keys there are, their defaults, and what each takes and refuses."""

import json
from collections.abc import Callable
from typing import Any

import platformdirs
import pytest
import yaml
from drakkar.settings import Settings, models
from drakkar.settings._keys import known_keys
from drakkar.settings.models import Section
from pydantic import SecretStr, ValidationError

DEFAULTS: dict[str, Any] = {
    "worker_name": "",
    "worker_name_env": "WORKER_ID",
    "cluster_name": "",
    "cluster_name_env": "",
    "storage.dir": platformdirs.user_state_dir("drakkar"),
    "shared.dir": "",
    "fleet.registry.provider": "filesystem",
    "fleet.registry.heartbeat_seconds": 10,
    "fleet.registry.refresh_seconds": 15,
    "fleet.registry.offline_after_seconds": 30,
    "fleet.registry.prune_after_seconds": 86400,
    "fleet.registry.timeout_seconds": 5,
    "fleet.registry.filesystem.dir": "",
    "fleet.registry.static.peers": (),
    "fleet.registry.plugin_options": {},
    "fleet.cache_exchange.enabled": True,
    "fleet.cache_exchange.interval_seconds": 30,
    "fleet.cache_exchange.page_size": 500,
    "fleet.cache_exchange.timeout_seconds": 5,
    "fleet.cache_exchange.cycle_deadline_seconds": None,
    "fleet.cache_exchange.max_concurrent_peers": 4,
    "cache.enabled": False,
    "cache.flush_interval_seconds": 3,
    "cache.cleanup_interval_seconds": 60,
    "cache.max_memory_entries": 10000,
    "ui.enabled": True,
    "ui.host": "127.0.0.1",
    "ui.port": None,
    "ui.public_url": "",
    "ui.auth_token": SecretStr(""),
    "supervisor.workers": (),
    "supervisor.leases.provider": "",
    "supervisor.leases.plugin_options": {},
    "supervisor.leases.ttl_seconds": 30,
    "supervisor.leases.renew_seconds": 10,
    "supervisor.leases.retry_seconds": 5,
    "supervisor.leases.timeout_seconds": 3,
    "supervisor.stop_timeout_seconds": 10,
}
SECTIONS = [
    "storage",
    "shared",
    "fleet",
    "fleet.registry",
    "fleet.registry.filesystem",
    "fleet.registry.static",
    "fleet.cache_exchange",
    "cache",
    "ui",
    "supervisor",
    "supervisor.leases",
]
PROVIDER_SECTIONS = ["fleet.registry.consul", "fleet.registry.etcd", "fleet.registry.redis"]

# For each key: values that are taken, and values that are refused, as they come out of YAML.
TIMINGS = [key for key in DEFAULTS if key.endswith("_seconds")]
NO_TEXT: list[Any] = [7, 1.5, True, None, ["a"], {"a": 1}]
NO_NAME: list[Any] = [*NO_TEXT, "a\nb", "a\tb", "\x00", "\x7f", "\x85", "a\u2028b", "\ud800", "n" * 201]
NO_SECONDS: list[Any] = [
    *(
        0,
        -1,
        -0.0,
        1e-9,
        0.0099,
        float("inf"),
        float("nan"),
        10**400,
        True,
        False,
        None,
        "10",
        "",
        [1],
        {"a": 1},
    ),
]
NO_FLAG: list[Any] = [0, 1, None, "true", "", [], {}]
NO_COUNT: list[Any] = [0, -1, 1.0, True, None, "4", [], {}, 10**30]
NO_MAP: list[Any] = [
    7,
    True,
    "text",
    ["a"],
    {"a": float("inf")},
    {"a": {"b": [float("nan")]}},
    {"a": "\udfff"},
]
NO_FOLDER: list[Any] = [*NO_TEXT, "~", "~/state", "a\x00b", "\ud800"]
NO_URL: list[Any] = [
    *NO_TEXT,
    *("host", "//host", "ftp://host/", "javascript:alert(1)", "http://", "http:///path", "http://:8080/"),
    *(
        "http://a b/",
        "http://host/\n",
        "http://host:port/",
        "http://host:65536/",
        "http://[::1/",
        "http://a\\b/",
    ),
    *("http://user@host/", "http://user:hidden@host/", "http://host/" + "x" * 989, "\ud800", 'http://h/"'),
]
PEER = {"name": "worker-2", "url": "http://10.0.0.2:8080/"}

TAKEN: dict[str, list[Any]] = {
    "worker_name": ["", "worker-1", "n" * 200, "Wörker 1", "名"],
    "worker_name_env": ["", "POD_NAME"],
    "cluster_name": ["", "search", "n" * 200],
    "cluster_name_env": ["", "CLUSTER"],
    "storage.dir": ["", "/var/lib/drakkar", "/a~b"],
    "shared.dir": ["", "/mnt/fleet"],
    "fleet.registry.provider": ["none", "static", "my-provider"],
    "fleet.registry.heartbeat_seconds": [1, 0.25, 15],
    "fleet.registry.refresh_seconds": [1, 0.01, 1000000],
    "fleet.registry.offline_after_seconds": [20, 20.5, 86400],
    "fleet.registry.prune_after_seconds": [30, 1e9],
    "fleet.registry.timeout_seconds": [0.1, 60],
    "fleet.registry.filesystem.dir": ["", "/mnt/fleet-registry"],
    "fleet.registry.static.peers": [[], [PEER], [PEER | {"cluster": "search"}, PEER | {"name": "worker-3"}]],
    "fleet.registry.plugin_options": [{}, {"a": [1, 1.5, True, None, "text", {"b": {}}]}],
    "fleet.cache_exchange.enabled": [True, False],
    "fleet.cache_exchange.interval_seconds": [0.5, 600],
    "fleet.cache_exchange.page_size": [1, 1000],
    "fleet.cache_exchange.timeout_seconds": [0.1, 60],
    "fleet.cache_exchange.cycle_deadline_seconds": [None, 5, 30],
    "fleet.cache_exchange.max_concurrent_peers": [1, 64],
    "cache.enabled": [False, True],
    "cache.flush_interval_seconds": [0.1, 60],
    "cache.cleanup_interval_seconds": [0.1, 3600],
    "cache.max_memory_entries": [1, 10**6],
    "ui.enabled": [True, False],
    "ui.host": ["0.0.0.0", "::", "::1", "localhost", "worker-1.example.org"],
    "ui.port": [None, 0, 1, 8080, 65535],
    "ui.public_url": [
        *("", "http://10.0.3.17:8080/", "https://worker-1.example.org", "http://[2001:db8::1]:8080/w/"),
        "http://host/" + "x" * 988,
    ],
    "ui.auth_token": ["", "a-token", "!~" * 500],
    "supervisor.workers": [[], ["gc"], ["gc", "lifecycle", "a name"]],
    "supervisor.leases.provider": ["", "none", "my-provider"],
    "supervisor.leases.plugin_options": [{}, {"assignments": {"gc-*": "worker-1"}}],
    "supervisor.leases.ttl_seconds": [2, 0.5, 3600],
    "supervisor.leases.renew_seconds": [1, 0.25, 1000],
    "supervisor.leases.retry_seconds": [1, 0.25, 1000],
    "supervisor.leases.timeout_seconds": [0.1, 60],
    "supervisor.stop_timeout_seconds": [0.1, 600],
}
REFUSED: dict[str, list[Any]] = {
    "worker_name": NO_NAME,
    "worker_name_env": [*NO_TEXT, "A=B", "A\x00"],
    "cluster_name": NO_NAME,
    "cluster_name_env": [*NO_TEXT, "A=B", "A\x00"],
    "storage.dir": NO_FOLDER,
    "shared.dir": NO_FOLDER,
    "fleet.registry.provider": [*NO_NAME, ""],
    **dict.fromkeys(TIMINGS, NO_SECONDS),
    "fleet.registry.filesystem.dir": NO_FOLDER,
    "fleet.registry.static.peers": [
        *(
            7,
            True,
            None,
            "text",
            PEER,
            [7],
            ["text"],
            [[]],
            [{}],
            [{"name": "worker-2"}],
            [{"url": PEER["url"]}],
        ),
        *([PEER | {"name": ""}], [PEER | {"url": ""}], [PEER | {"port": 1}], [PEER | {"cluster": None}]),
        *([PEER | {"name": name}] for name in NO_NAME),
        *([PEER | {"url": url}] for url in NO_URL),
    ],
    "fleet.registry.plugin_options": NO_MAP,
    "fleet.cache_exchange.enabled": NO_FLAG,
    "fleet.cache_exchange.page_size": [*NO_COUNT, 1001],
    "fleet.cache_exchange.cycle_deadline_seconds": [value for value in NO_SECONDS if value is not None],
    "fleet.cache_exchange.max_concurrent_peers": NO_COUNT,
    "cache.enabled": NO_FLAG,
    "cache.max_memory_entries": NO_COUNT,
    "ui.enabled": NO_FLAG,
    "ui.host": [
        *NO_TEXT,
        "",
        "[::1]",
        "a b",
        "256.1.1.1",
        "1.2.3.4.5",
        ":::",
        "http://host",
        "a@b",
        "a\nb",
        "\ud800",
        "h" * 256,
    ],
    "ui.port": [-1, 65536, 8080.0, True, "8080", "", [], {}, 10**30],
    "ui.public_url": NO_URL,
    "ui.auth_token": [*NO_TEXT, "a b", "a\n", "tökén", "\x7f", "\ud800"],
    "supervisor.workers": [7, True, None, "gc", {"gc": 1}, [7], [None], [""], [["gc"]], ["a\nb"]],
    "supervisor.leases.provider": NO_NAME,
    "supervisor.leases.plugin_options": NO_MAP,
}


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    settings: dict[str, Any] = value
    return settings


def read(settings: Settings, key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value


def pairs(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(key, value, id=f"{key}-{index}")
        for key, values in table.items()
        for index, value in enumerate(values)
    ]


def test_the_keys_are_those_of_the_tables() -> None:
    assert sorted(known_keys()) == sorted([*DEFAULTS, *SECTIONS, *PROVIDER_SECTIONS])
    assert TAKEN.keys() == REFUSED.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_key_has_its_default(key: str, load: Callable[..., Settings]) -> None:
    assert read(load(), key) == DEFAULTS[key]


@pytest.mark.parametrize(("key", "value"), pairs(TAKEN))
def test_a_key_takes_a_value_that_holds(key: str, value: Any) -> None:
    settings = Settings.model_validate(nested(key, value))

    dumped: Any = settings.model_dump(mode="json")
    for part in key.split("."):
        dumped = dumped[part]
    if key == "ui.auth_token":
        assert settings.ui.auth_token.get_secret_value() == value
    elif key == "fleet.registry.static.peers":
        assert dumped == [{"cluster": ""} | peer for peer in value]
    else:
        assert dumped == value


@pytest.mark.parametrize(("key", "value"), pairs(REFUSED))
def test_a_key_refuses_a_value_that_does_not_hold(key: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(nested(key, value))


@pytest.mark.parametrize(("key", "value"), pairs(REFUSED))
def test_a_refusal_names_the_file_and_the_key(key: str, value: Any, refusal: Callable[..., str]) -> None:
    text = yaml.safe_dump(nested(key, value), allow_unicode=False)

    message = refusal(text)

    assert "drakkar.yaml, line" in message
    assert key in message


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_key_can_be_set_by_its_variable(key: str, load: Callable[..., Settings]) -> None:
    value = next(value for value in reversed(TAKEN[key]) if value is not None)
    text = value if isinstance(value, str) else json.dumps(value)
    variable = f"DK_{key.replace('.', '__').upper()}"

    assert load(environ={variable: text}) == Settings.model_validate(nested(key, value))
    assert load(overrides={key: text}) == Settings.model_validate(nested(key, value))


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_a_section_may_be_empty(section: str) -> None:
    data = nested(section, None) if section else None

    assert Settings.model_validate(data) == Settings()


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", [7, "text", ["a"], True])
def test_a_section_is_a_map(section: str, value: Any, refusal: Callable[..., str]) -> None:
    assert f"{section} must be a map" in refusal(yaml.safe_dump(nested(section, value)))


@pytest.mark.parametrize("section", ["", *SECTIONS])
def test_a_section_takes_no_unknown_key(section: str) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(nested(f"{section}.nonsense".strip("."), 1))


def test_settings_cannot_be_changed() -> None:
    settings = Settings()

    for section in (settings, settings.ui, settings.fleet.registry, settings.fleet.registry.filesystem):
        with pytest.raises(ValidationError):
            setattr(section, next(iter(type(section).model_fields)), "other")


def test_a_setting_does_not_change_with_what_it_was_made_of() -> None:
    options = {"nodes": ["a"]}
    settings = Settings.model_validate(nested("fleet.registry.plugin_options", options))
    options["nodes"].append("b")

    assert settings.fleet.registry.plugin_options == {"nodes": ["a"]}


@pytest.mark.parametrize(
    ("timings", "broken"),
    [
        ({"heartbeat_seconds": 15}, []),
        ({"heartbeat_seconds": 15.001}, ["offline_after_seconds", "heartbeat_seconds"]),
        ({"offline_after_seconds": 20}, []),
        ({"offline_after_seconds": 19.999}, ["offline_after_seconds", "heartbeat_seconds"]),
        ({"prune_after_seconds": 30}, []),
        ({"prune_after_seconds": 29.999}, ["prune_after_seconds", "offline_after_seconds"]),
        ({"offline_after_seconds": 90000}, ["prune_after_seconds", "offline_after_seconds"]),
    ],
)
def test_timings_must_fit_each_other(
    timings: dict[str, float], broken: list[str], refusal: Callable[..., str], load: Callable[..., Settings]
) -> None:
    text = yaml.safe_dump(nested("fleet.registry", timings))

    if not broken:
        load(text)
        return
    message = refusal(text)
    first, second = (message.find(f"fleet.registry.{key} ") for key in broken)
    assert 0 <= first < second
    assert "more)" not in message


@pytest.mark.parametrize(
    ("times", "broken"),
    [
        ({"cycle_deadline_seconds": 30}, None),
        (
            {"cycle_deadline_seconds": 30.001},
            "(30.001) must be at most fleet.cache_exchange.interval_seconds",
        ),
        ({"cycle_deadline_seconds": 5}, None),
        (
            {"cycle_deadline_seconds": 4.999},
            "(4.999) must be at least fleet.cache_exchange.timeout_seconds (5)",
        ),
        ({"interval_seconds": 0.1, "timeout_seconds": 60}, None),
    ],
)
def test_a_round_has_time_for_a_request_and_ends_before_the_next(
    times: dict[str, float], broken: str | None, refusal: Callable[..., str], load: Callable[..., Settings]
) -> None:
    text = yaml.safe_dump(nested("fleet.cache_exchange", times))

    if broken is None:
        load(text)
        return
    assert f" fleet.cache_exchange.cycle_deadline_seconds {broken}" in refusal(text)


@pytest.mark.parametrize("provider", ["redis", "etcd", "consul", "filesystem", "sqlite"])
def test_an_option_to_prune_is_held_to_the_same(
    provider: str, refusal: Callable[..., str], load: Callable[..., Settings]
) -> None:
    for place in {provider, "plugin_options"} - {"filesystem"}:
        key = f"fleet.registry.{place}.prune_after_seconds"
        chosen = {"fleet.registry.provider": provider}
        said = refusal(overrides=chosen | {key: "29.999"})
        assert said.startswith(f"overrides: {key} (29.999) must be at least fleet.registry.offline_after_")
        load(overrides=chosen | {key: "30"})
        load(overrides=chosen | {key: "null"})


def test_an_option_to_prune_of_another_provider_is_left_alone(load: Callable[..., Settings]) -> None:
    settings = load(overrides={"fleet.registry.redis.prune_after_seconds": "0.5"})

    assert settings.fleet.registry.section("redis") == {"prune_after_seconds": 0.5}


def test_each_broken_relation_has_its_own_message(refusal: Callable[..., str]) -> None:
    message = refusal("fleet: {registry: {heartbeat_seconds: 40, prune_after_seconds: 5}}")

    assert message.endswith("(and 1 more)")


@pytest.mark.parametrize("name", ["consul", "etcd", "redis"])
def test_a_published_provider_has_a_section_of_free_form(name: str) -> None:
    data = nested(f"fleet.registry.{name}", {"url": "x", "nested": {"a": [1]}})
    settings = Settings.model_validate(data)

    assert settings.fleet.registry.section(name) == {"url": "x", "nested": {"a": [1]}}


def test_another_provider_has_one_while_it_is_configured() -> None:
    data = {"provider": "mine", "mine": {"a": 1}}
    settings = Settings.model_validate(nested("fleet.registry", data))

    assert settings.fleet.registry.section("mine") == {"a": 1}
    with pytest.raises(ValidationError):
        Settings.model_validate(nested("fleet.registry", data | {"provider": "none"}))


@pytest.mark.parametrize("value", NO_MAP)
def test_the_section_of_a_provider_is_a_map_of_json(value: Any) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(nested("fleet.registry.redis", value))


def test_the_section_of_a_provider_may_be_empty() -> None:
    settings = Settings.model_validate(nested("fleet.registry.redis", None))

    assert settings.fleet.registry.section("redis") == {}


def test_no_secret_is_in_the_repr() -> None:
    options = {"redis": {"url": "hidden"}, "plugin_options": {"a": "hidden"}}
    settings = Settings.model_validate({"ui": {"auth_token": "hidden"}} | nested("fleet.registry", options))

    assert "hidden" not in repr(settings)
    assert "hidden" not in str(settings)


def test_no_secret_is_in_the_error_of_the_models() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(
            {"ui": {"auth_token": "hidden and spaces", "public_url": "http://u:hidden@h/"}}
        )

    assert "hidden" not in str(caught.value)


def test_every_key_is_described() -> None:
    sections = [
        each for each in vars(models).values() if isinstance(each, type) and issubclass(each, Section)
    ]
    fields = [
        (f"{section.__name__}.{name}", field)
        for section in sections
        for name, field in section.model_fields.items()
    ]
    is_section = [name for name, field in fields if field.annotation in sections]

    assert [name for name, field in fields if not field.description and name not in is_section] == []

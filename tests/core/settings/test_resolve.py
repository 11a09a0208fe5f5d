"""Names, folders and options that follow from the settings."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings
from drakkar.settings.resolve import (
    cluster_name,
    config_summary,
    naming_origins,
    naming_written_keys,
    provider_options,
    registry_folder,
    spans_hosts,
    worker_name,
)

NOT_NAMES = ["a\nb", "\x00", "n" * 201, "\udcff", "worker-1\n"]


def settings(**keys: str) -> Settings:
    return load_settings(
        environ={},
        overrides={"storage.dir": ""} | {key.replace("__", "."): text for key, text in keys.items()},
    )


def test_a_worker_has_the_name_that_is_set() -> None:
    assert worker_name(settings(worker_name="worker-1"), {"WORKER_ID": "worker-2"}, 8080) == "worker-1"


def test_else_it_has_the_name_in_the_environment() -> None:
    assert worker_name(settings(), {"WORKER_ID": "worker-2"}, 8080) == "worker-2"


def test_else_it_has_the_name_in_the_variable_that_is_named() -> None:
    named = settings(worker_name_env="POD_NAME")

    assert worker_name(named, {"WORKER_ID": "worker-2", "POD_NAME": "worker-3"}, 8080) == "worker-3"


@pytest.mark.parametrize("environ", [{}, {"WORKER_ID": ""}])
def test_else_its_name_is_made_of_host_and_port(environ: dict[str, str]) -> None:
    assert worker_name(settings(), environ, 8081) == f"{socket.gethostname()}-8081"


def test_no_variable_is_read_when_none_is_named() -> None:
    assert worker_name(settings(worker_name_env=""), {"": "a", "WORKER_ID": "b"}, 1).endswith("-1")


def test_without_a_port_the_process_tells_workers_apart() -> None:
    assert worker_name(settings(), {}, None) == f"{socket.gethostname()}-{os.getpid()}"


@pytest.mark.parametrize(
    ("host", "expected"), [("h" * 300, "h" * 195 + "-8080"), ("", "worker-8080"), ("a\nb", "ab-8080")]
)
def test_a_derived_name_is_a_valid_one(host: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    assert worker_name(settings(), {}, 8080) == expected


@pytest.mark.parametrize("name", NOT_NAMES)
def test_a_name_in_the_environment_is_held_to_the_same_rules(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^WORKER_ID \(the variable of worker_name_env\) must "):
        worker_name(settings(), {"WORKER_ID": name}, 8080)
    with pytest.raises(ConfigError, match=r"^POD_CLUSTER \(the variable of cluster_name_env\) must "):
        cluster_name(settings(cluster_name_env="POD_CLUSTER"), {"POD_CLUSTER": name})


@pytest.mark.parametrize(
    ("keys", "environ", "expected"),
    [
        ({}, {}, ""),
        ({}, {"": "a"}, ""),
        ({"cluster_name": "search"}, {}, "search"),
        ({"cluster_name_env": "POD_CLUSTER"}, {}, ""),
        ({"cluster_name_env": "POD_CLUSTER"}, {"POD_CLUSTER": "index"}, "index"),
        ({"cluster_name": "search", "cluster_name_env": "POD_CLUSTER"}, {"POD_CLUSTER": "index"}, "search"),
    ],
)
def test_a_cluster_is_set_or_in_the_environment_or_none(
    keys: dict[str, str], environ: dict[str, str], expected: str
) -> None:
    assert cluster_name(settings(**keys), environ) == expected


ALL = {"fleet__registry__filesystem__dir": "/explicit", "shared__dir": "/shared", "storage__dir": "/storage"}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (ALL, (Path("/explicit"), True)),
        (ALL | {"fleet__registry__filesystem__dir": ""}, (Path("/shared/fleet"), False)),
        ({"storage__dir": "/storage"}, (Path("/storage/fleet"), False)),
        ({"shared__dir": "/shared"}, (Path("/shared/fleet"), False)),
        ({}, None),
        (ALL | {"fleet__registry__plugin_options__dir": "/options"}, (Path("/options"), True)),
        (ALL | {"fleet__registry__plugin_options__dir": ""}, (Path("/explicit"), True)),
        (
            ALL | {"fleet__registry__plugin_options__dir": "/options", "fleet__registry__provider": "other"},
            (Path("/explicit"), True),
        ),
    ],
)
def test_the_card_folder_is_explicit_or_derived_or_none(keys: dict[str, str], expected: Any) -> None:
    assert registry_folder(settings(**keys)) == expected


def test_the_default_storage_folder_is_the_users_own() -> None:
    folder = registry_folder(load_settings(environ={}))

    assert folder is not None
    assert folder[0].is_absolute()
    assert folder[0].parts[-2:] == ("drakkar", "fleet")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"dir": "", "explicit": False}),
        ({"shared__dir": "/shared"}, {"dir": "/shared/fleet", "explicit": False}),
        ({"fleet__registry__filesystem__dir": "/explicit"}, {"dir": "/explicit", "explicit": True}),
        (
            {"fleet__registry__plugin_options": '{"dir": "/options", "prune_after_seconds": 60}'},
            {"dir": "/options", "explicit": True, "prune_after_seconds": 60},
        ),
        ({"fleet__registry__provider": "none"}, {}),
        ({"fleet__registry__provider": "redis"}, {}),
        (
            {
                "fleet__registry__provider": "redis",
                "fleet__registry__redis": '{"url": "a", "db": 1}',
                "fleet__registry__plugin_options": '{"db": 2, "tls": true}',
                "fleet__registry__etcd": '{"endpoint": "b"}',
            },
            {"url": "a", "db": 2, "tls": True},
        ),
        (
            {"fleet__registry__provider": "mine", "fleet__registry__mine__a": "1"},
            {"a": 1},
        ),
        (
            {
                "fleet__registry__provider": "static",
                "fleet__registry__static__peers": '[{"name": "worker-2", "url": "http://b/"}]',
            },
            {"peers": [{"name": "worker-2", "cluster": "", "url": "http://b/"}]},
        ),
        ({"fleet__registry__provider": "static"}, {"peers": []}),
    ],
)
def test_a_provider_gets_its_section_and_the_plugin_options_on_top(
    keys: dict[str, str], expected: dict[str, Any]
) -> None:
    assert provider_options(settings(**keys)) == expected


CARDS, LEASES = "fleet.registry.plugin_options", "supervisor.leases.plugin_options"


@pytest.mark.parametrize(
    ("keys", "leases", "text", "told"),
    [
        ({}, False, "fleet.registry.redis.url is", "fleet.registry.redis.url is"),
        ({CARDS: '{"url": 1}'}, False, "fleet.registry.redis.url is", f"{CARDS}.url is"),
        ({CARDS: '{"url": 1}'}, False, "fleet.registry.redis.url_b is", "fleet.registry.redis.url_b is"),
        (
            {CARDS: '{"a.": 1}'},
            False,
            "fleet.registry.redis has no option 'a.'",
            f"{CARDS} has no option 'a.'",
        ),
        ({CARDS: '{"url": 1}'}, True, "fleet.registry.redis.url is", f"{CARDS}.url is"),
        ({LEASES: '{"url": 1}'}, False, "fleet.registry.redis.url is", "fleet.registry.redis.url is"),
        (
            {LEASES: '{"url": 1}', CARDS: '{"url": 1}'},
            True,
            "fleet.registry.redis.url is",
            f"{LEASES}.url is",
        ),
        (
            {CARDS: '{"url": 1}', "supervisor.leases.provider": "etcd"},
            True,
            "fleet.registry.etcd.url is",
            "fleet.registry.etcd.url is",
        ),
    ],
)
def test_what_a_provider_refuses_is_told_by_the_key_that_was_written(
    keys: dict[str, str], leases: bool, text: str, told: str
) -> None:
    loaded = load_settings(environ={}, overrides={"fleet.registry.provider": "redis"} | keys)

    with pytest.raises(ConfigError) as refused, naming_written_keys(loaded, leases=leases):
        raise ConfigError(text)

    assert str(refused.value) == told


FILE = """\
fleet:
  registry:
    provider: redis
    redis:
      url: redis://a/
      prefix: x
supervisor:
  leases:
    plugin_options: {min_replicas: 1}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fleet.registry.provider 'redis': fleet.registry.redis.url is", "{file}, line 5: "),
        ("fleet.registry.redis.url and fleet.registry.redis.prefix are", "{file}, line 5: "),
        ("fleet.registry.redis has no option 'prefix'", "DK_FLEET__REGISTRY__REDIS__PREFIX: "),
        ("fleet.registry.provider is 'redis', which is", "{file}, line 3: "),
        ("fleet.registry.redis.nodes[0] is missing", "{file}, line 4: "),
        ("leases of supervisor.leases.provider: fleet.registry.redis.min_replicas is", "{file}, line 9: "),
        ("supervisor.leases.provider 'redis' has no leases", "{file}, line 8: "),
        ("supervisor.workers: 'gc' is not installed", "DK_WORKERS: "),
        ("the store is down", ""),
    ],
)
def test_what_a_provider_refuses_is_told_with_where_it_was_written(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "drakkar.yaml"
    file.write_text(FILE)
    loaded = load_settings(file, environ={"DK_FLEET__REGISTRY__REDIS__PREFIX": "y", "DK_WORKERS": "gc"})

    with (
        pytest.raises(ConfigError) as refused,
        naming_origins(loaded),
        naming_written_keys(loaded, leases=True),
    ):
        raise ConfigError(text)

    assert str(refused.value).startswith(told.format(file=file) + text[:20])


def test_settings_that_say_the_same_are_equal_wherever_they_came_from(tmp_path: Path) -> None:
    file = tmp_path / "drakkar.yaml"
    file.write_text("ui: {port: 8099}\n")

    assert load_settings(file, environ={}) == load_settings(environ={"DK_UI__PORT": "8099"})


def test_a_provider_cannot_change_the_settings_through_its_options() -> None:
    loaded = settings(fleet__registry__provider="redis", fleet__registry__redis='{"nodes": ["a"]}')
    provider_options(loaded)["nodes"].append("b")

    assert provider_options(loaded) == {"nodes": ["a"]}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, False),
        ({"storage__dir": "/storage"}, False),
        ({"storage__dir": "/storage", "shared__dir": "/shared"}, True),
        ({"fleet__registry__filesystem__dir": "/explicit"}, True),
        ({"shared__dir": "/shared", "fleet__registry__provider": "none"}, False),
        ({"shared__dir": "/shared", "fleet__registry__provider": "static"}, False),
        ({"fleet__registry__provider": "redis"}, True),
    ],
)
def test_a_store_is_seen_by_other_hosts_or_not(keys: dict[str, str], expected: bool) -> None:
    assert spans_hosts(settings(**keys)) is expected


def test_the_summary_is_one_line_without_secrets() -> None:
    summary = config_summary(
        settings(
            fleet__registry__provider="redis",
            fleet__registry__heartbeat_seconds="2.5",
            fleet__registry__redis='{"url": "redis://:hidden@a/"}',
            ui__auth_token="hidden",
        )
    )

    assert summary.isprintable()
    assert "hidden" not in summary
    assert "provider=redis" in summary
    assert "heartbeat=2.5s" in summary

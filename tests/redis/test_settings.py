"""Options: what is understood, what is refused, and that no secret is shown."""

from typing import Any

import pytest
from drakkar.settings import load_settings
from drakkar.settings.resolve import provider_options
from drakkar_redis import make_registry
from drakkar_redis.settings import _KNOWN, read_settings

URL = "redis://10.0.0.1:6379/0"
SENTINELS = {"sentinels": ["10.0.0.1:26379", "10.0.0.2"], "service_name": "fleet-master"}


def test_it_needs_no_more_than_a_url() -> None:
    settings = read_settings({"url": URL})

    assert (settings.hosts, settings.db, settings.prefix) == ((("10.0.0.1", 6379),), 0, "drakkar")
    assert not settings.tls
    assert settings.address == "redis://10.0.0.1:6379"


@pytest.mark.parametrize(
    ("url", "hosts", "db"),
    [
        ("redis://example.org", (("example.org", 6379),), 0),
        ("redis://example.org/", (("example.org", 6379),), 0),
        ("redis://example.org:7000/3", (("example.org", 7000),), 3),
        ("redis://example.org?db=3", (("example.org", 6379),), 3),
        ("redis://[::1]:7000", (("::1", 7000),), 0),
        ("redis://[fe80::1%eth0]", (("fe80::1%eth0", 6379),), 0),
    ],
)
def test_it_takes_an_address_apart(url: str, hosts: tuple[tuple[str, int], ...], db: int) -> None:
    settings = read_settings({"url": url})

    assert (settings.hosts, settings.db) == (hosts, db)


def test_it_takes_a_login_out_of_the_url() -> None:
    settings = read_settings({"url": "rediss://me:p%40ss%2Fw%23rd%3A@example.org"})

    assert (settings.username, settings.password, settings.tls) == ("me", "p@ss/w#rd:", True)


def test_it_takes_a_password_without_a_user() -> None:
    settings = read_settings({"url": "redis://:secret@example.org"})

    assert (settings.username, settings.password) == ("", "secret")


def test_an_option_wins_over_the_url() -> None:
    settings = read_settings({"url": "redis://me:old@example.org", "password": "new"})

    assert (settings.username, settings.password) == ("me", "new")


def test_it_knows_a_socket() -> None:
    settings = read_settings({"url": "unix://me:secret@/run/redis%20one.sock?db=2"})

    assert (settings.path, settings.db, settings.password) == ("/run/redis one.sock", 2, "secret")
    assert settings.address == "unix:///run/redis one.sock"


def test_it_knows_sentinels() -> None:
    settings = read_settings(SENTINELS)

    assert settings.sentinels == (("10.0.0.1", 26379), ("10.0.0.2", 26379))
    assert read_settings({**SENTINELS, "sentinels": "10.0.0.1:26379, 10.0.0.2"}) == settings


def test_it_knows_several_servers_of_a_cluster() -> None:
    settings = read_settings({"url": "redis://:secret@a:7000,b:7001,[::1]:7002", "cluster": True})

    assert settings.hosts == (("a", 7000), ("b", 7001), ("::1", 7002))
    assert settings.cluster


def test_what_variables_say_comes_as_each_option_wants_it() -> None:
    section = "DK_FLEET__REGISTRY__REDIS__"
    environ = {
        "DK_FLEET__REGISTRY__PROVIDER": "redis",
        f"{section}SENTINELS": "10.0.0.1,10.0.0.2:5",
        f"{section}SERVICE_NAME": "8",
        f"{section}PREFIX": "{7",
        f"{section}USERNAME": "12345",
        f"{section}PASSWORD": "1e5",
        f"{section}SENTINEL_PASSWORD": "true",
        f"{section}CLUSTER": "no",
        f"{section}MIN_REPLICAS": "1",
        f"{section}PRUNE_AFTER_SECONDS": "600",
    }

    settings = read_settings(provider_options(load_settings(environ=environ)))

    assert settings.sentinels == (("10.0.0.1", 26379), ("10.0.0.2", 5))
    assert (settings.service_name, settings.prefix, settings.username) == ("8", "{7", "12345")
    assert (settings.password, settings.sentinel_password) == ("1e5", "true")
    assert (settings.cluster, settings.min_replicas, settings.prune_after_seconds) == (False, 1, 600)


def test_digits_of_an_environment_variable_are_text() -> None:
    settings = read_settings({"url": URL, "password": 12345, "prefix": 7})

    assert (settings.password, settings.prefix) == ("12345", "7")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": None}, "url"),
        ({"url": 6379}, "url"),
        ({"url": "localhost:6379"}, "url"),
        ({"url": "http://localhost"}, "url"),
        ({"url": "redis://"}, "url"),
        ({"url": "redis://host:port"}, "url"),
        ({"url": "redis://host:99999"}, "url"),
        ({"url": "redis://host:0"}, "url"),
        ({"url": "redis://host:" + "9" * 5000}, "url"),
        ({"url": "redis://host:\u0663"}, "url"),
        ({"url": "redis://host/" + "9" * 5000}, "url"),
        ({"url": "redis://host/name"}, "url"),
        ({"url": "redis://host/0/1"}, "url"),
        ({"url": "redis://host/1?db=2"}, "url"),
        ({"url": "redis://host?socket_timeout=99"}, "url"),
        ({"url": "rediss://host?ssl_cert_reqs=none"}, "url"),
        ({"url": "redis://me:pass#word@host"}, "url"),
        ({"url": "redis://me:pass/word@host"}, "url"),
        ({"url": "redis://ho st"}, "url"),
        ({"url": "redis://a,b"}, "url"),
        ({"url": "redis://a/1", "cluster": True}, "url"),
        ({"url": "unix://run/redis.sock"}, "url"),
        ({"url": "unix:///run/redis.sock", "cluster": True}, "url"),
        ({"url": URL, **SENTINELS}, "url"),
        ({"sentinels": ["a"]}, "service_name"),
        ({"sentinels": 5, "service_name": "x"}, "sentinels"),
        ({"sentinels": ["a:b"], "service_name": "x"}, "sentinels"),
        ({**SENTINELS, "cluster": True}, "cluster"),
        ({"url": URL, "service_name": "x"}, "service_name"),
        ({"url": URL, "sentinel_password": "x"}, "sentinel_password"),
        ({"url": URL, "cluster": "maybe"}, "cluster"),
        ({"url": URL, "cluster": 2}, "cluster"),
        ({"url": URL, "cluster": 1.0}, "cluster"),
        ({"url": URL, "cluster": []}, "cluster"),
        ({"url": URL, "prefix": ""}, "prefix"),
        ({"url": URL, "prefix": "x" * 201}, "prefix"),
        ({"url": URL, "prefix": "\ud800"}, "prefix"),
        ({"url": URL, "prefix": True}, "prefix"),
        ({"url": URL, "password": ["x"]}, "password"),
        ({"url": URL, "password": 1.5}, "password"),
        ({"url": URL, "ca_file": "/ca.pem"}, "ca_file"),
        ({**SENTINELS, "cert_file": "/c.pem", "key_file": "/k.pem"}, "cert_file"),
        ({"url": "rediss://host", "ca_file": "/none/ca.pem"}, "ca_file"),
        ({"url": "rediss://host", "ca_file": "-----BEGIN CERTIFICATE-----\nhidden"}, "ca_file"),
        ({"url": "rediss://host", "ca_file": "/ca\0.pem"}, "ca_file"),
        ({"url": "rediss://host", "cert_file": "/c.pem"}, "key_file"),
        ({"url": "rediss://host", "key_file": "/k.pem"}, "cert_file"),
        ({"url": URL, "prune_after_seconds": 0}, "prune_after_seconds"),
        ({"url": URL, "prune_after_seconds": float("nan")}, "prune_after_seconds"),
        ({"url": URL, "prune_after_seconds": "soon"}, "prune_after_seconds"),
        ({"url": URL, "min_replicas": -1}, "min_replicas"),
        ({"url": URL, "min_replicas": 1.0}, "min_replicas"),
        ({"url": URL, "min_replicas": True}, "min_replicas"),
    ],
    ids=lambda value: str(value)[:80],
)
def test_what_does_not_hold_is_refused_in_one_line_by_its_name(options: dict[str, Any], key: str) -> None:
    for make in (make_registry, make_registry.lease_backend):
        with pytest.raises(ValueError, match=rf"^fleet\.registry\.redis\.{key} [^\n]+$"):
            make(options)


@pytest.mark.parametrize(
    "words", [(True, "yes", "TRUE", "on", "1", 1), (False, "no", "False", "off", "0", 0)]
)
def test_a_flag_is_understood_as_variables_write_it(words: tuple[object, ...]) -> None:
    assert [read_settings({"url": URL, "cluster": word}).cluster for word in words] == [words[0]] * len(words)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pasword", ", did you mean password?"),
        ("sentinel", ", did you mean sentinels?"),
        ("user", ": use username"),
        ("db", ": use url, as in redis://host:6379/0"),
        ("host", ": use url, as in redis://host:6379/0"),
        ("tls", ": use a url that begins with rediss://"),
        ("x", f"; its options are {', '.join(_KNOWN)}"),
        ("timeout", f"; its options are {', '.join(_KNOWN)}"),
    ],
)
def test_an_unknown_option_is_refused_with_what_to_use_instead(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^fleet\.registry\.redis has no option") as refusal:
        read_settings({"url": URL, name: "hunter2"})

    assert str(refusal.value) == f"fleet.registry.redis has no option {name!r}{told}"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cluster": "maybe"}, "cluster must be true or false, not text"),
        ({"cluster": []}, "cluster must be true or false, not a list"),
        ({"password": {}}, "password must be text, not a map"),
        ({"min_replicas": None}, "min_replicas must be a whole number from 0 to 100, not nothing"),
        ({"min_replicas": -1}, "min_replicas must be a whole number from 0 to 100, not -1"),
        ({"min_replicas": 10**20}, "min_replicas must be a whole number from 0 to 100, not a number"),
        (
            {"prune_after_seconds": -1e20},
            "prune_after_seconds must be a number of seconds above 0, not a number",
        ),
        (
            {"prune_after_seconds": True},
            "prune_after_seconds must be a number of seconds above 0, not true or false",
        ),
        ({"password": object()}, "password must be text, not something else"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_refusal_speaks_no_python(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.") as refusal:
        read_settings({"url": URL, **options})

    assert str(refusal.value) == f"fleet.registry.redis.{told}"


@pytest.mark.parametrize(
    "options",
    [
        {"url": "redis://me:hunter2#@host"},
        {"url": "redis://me:hunter2/@host"},
        {"url": "redis://me:hunter2@host:port"},
        {"url": "redis://me:hunter2@host?password=hunter2"},
        {"url": "hunter2://me"},
        {"url": "redis://host", "password": {"hunter2": "hunter2"}},
        {"url": "redis://host", "sentinel_password": "hunter2"},
        {"url": URL, "min_replicas": "hunter2"},
        {"url": URL, "prune_after_seconds": "hunter2"},
    ],
    ids=lambda options: str(list(options)),
)
def test_a_refusal_shows_no_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.redis\.") as refusal:
        read_settings(options)

    assert "hunter2" not in str(refusal.value)


def test_a_key_that_is_no_name_is_not_shown() -> None:
    with pytest.raises(
        ValueError, match=r"^fleet\.registry\.redis has a key that is no name; its options"
    ) as refusal:
        read_settings({"redis://u:hunter2@host:1/0": None})

    assert "hunter2" not in str(refusal.value)


def test_a_number_where_text_belongs_is_told_how_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"prefix must be text, not a number; put it in quotes"):
        read_settings({"url": URL, "prefix": 1e5})


def test_settings_show_no_secret() -> None:
    secrets = {"password": "hunter2", "sentinel_password": "hunter2", "username": "hunter2"}
    settings = read_settings({**SENTINELS, **secrets, "sentinel_username": "hunter2"})

    assert "hunter2" not in repr(settings) + settings.address

"""Options: what is understood, what is refused, and that no secret is shown."""

import re
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.leadership import choose_leases
from drakkar.membership import choose_provider
from drakkar.settings import load_settings
from drakkar_consul import make_registry
from drakkar_consul.settings import read_settings
from support.log import RecordingLogger


def test_it_needs_no_option_at_all() -> None:
    settings = read_settings({})

    assert (settings.address, settings.prefix) == ("http://127.0.0.1:8500", "drakkar")
    assert (settings.token, settings.datacenter, settings.prune_after_seconds) == ("", "", None)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("consul.example.org", "http://consul.example.org:8500"),
        ("10.0.0.1:18500", "http://10.0.0.1:18500"),
        ("http://10.0.0.1", "http://10.0.0.1:8500"),
        ("http://10.0.0.1:80/", "http://10.0.0.1:80"),
        ("https://consul", "https://consul:8501"),
        ("https://[::1]:8500", "https://[::1]:8500"),
        ("[::1]", "http://[::1]:8500"),
        ("HTTPS://consul:1", "https://consul:1"),
    ],
)
def test_it_takes_an_address_apart(text: str, address: str) -> None:
    assert read_settings({"address": text}).address == address


def test_it_takes_a_token_of_digits_which_comes_as_a_number() -> None:
    assert read_settings({"token": 12345}).token == "12345"


def test_an_option_that_is_null_is_not_given() -> None:
    names = ("address", "token", "datacenter", "prefix", "ca_file", "cert_file", "key_file")

    assert read_settings(dict.fromkeys((*names, "prune_after_seconds"))) == read_settings({})


@pytest.mark.parametrize("prefix", ["cards", "leases", "a/b", "a/card", "a/token-base"])
def test_it_takes_a_prefix_that_is_in_no_other_fleet(prefix: str) -> None:
    assert read_settings({"prefix": prefix}).prefix == prefix


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adress": "host"}, "fleet.registry.consul has no option 'adress', did you mean address?"),
        ({"ca-file": "/x"}, "fleet.registry.consul has no option 'ca-file', did you mean ca_file?"),
        ({"zzz": 1}, "fleet.registry.consul has no option 'zzz', there is address, token, "),
        ({"address": 1.5}, "fleet.registry.consul.address must be text, not float"),
        ({"address": 5}, "fleet.registry.consul.address must be text, not int; put it in quotes"),
        ({"token": True}, "fleet.registry.consul.token must be text, not bool; put it in quotes"),
        ({"prefix": "a/cards"}, "fleet.registry.consul.prefix must not have a part cards or leases"),
        ({"prefix": "a/leases/b"}, "fleet.registry.consul.prefix must not have a part cards or leases"),
        (
            {"address": "https://host", "cert_file": "a.pem", "key_file": "-----BEGIN\nkey"},
            "fleet.registry.consul.key_file must be the path of a file, not what is in it",
        ),
        ({"address": "ftp://host"}, "fleet.registry.consul.address must be host:port, http://"),
        ({"address": "::1"}, "fleet.registry.consul.address must name a host and a port"),
        ({"address": "host:0"}, "fleet.registry.consul.address has a port that cannot be one"),
        ({"address": "host:65536"}, "fleet.registry.consul.address has a port that cannot be one"),
        ({"address": "host/v1"}, "fleet.registry.consul.address must name a host and a port"),
        ({"address": "ho st"}, "fleet.registry.consul.address must name a host and a port"),
        ({"datacenter": "a b"}, "fleet.registry.consul.datacenter must be letters"),
        ({"prefix": ""}, "fleet.registry.consul.prefix is empty"),
        ({"prefix": "/fleet"}, "fleet.registry.consul.prefix must not begin or end with /"),
        ({"prefix": "fleet/"}, "fleet.registry.consul.prefix must not begin or end with /"),
        ({"prefix": "a//b"}, "fleet.registry.consul.prefix must not begin or end with /, nor hold //"),
        ({"prefix": "a/../b"}, "fleet.registry.consul.prefix must not begin or end with /, nor hold //"),
        ({"prefix": "a\nb"}, "fleet.registry.consul.prefix holds a character that cannot be in a key"),
        ({"prefix": "x" * 201}, "fleet.registry.consul.prefix must have at most 200 characters"),
        ({"ca_file": "ca.pem"}, "fleet.registry.consul.ca_file is for TLS, which needs an https:// address"),
        (
            {"address": "https://host", "cert_file": "a.pem"},
            "fleet.registry.consul.key_file is missing beside cert_file",
        ),
        (
            {"address": "https://host", "ca_file": "/does/not/exist"},
            "fleet.registry.consul.ca_file cannot be used",
        ),
        ({"prune_after_seconds": 0}, "fleet.registry.consul.prune_after_seconds must be a number of seconds"),
        (
            {"prune_after_seconds": -1},
            "fleet.registry.consul.prune_after_seconds must be a number of seconds",
        ),
        ({"prune_after_seconds": True}, "fleet.registry.consul.prune_after_seconds must be a number"),
        ({"prune_after_seconds": float("nan")}, "fleet.registry.consul.prune_after_seconds must be a number"),
    ],
)
def test_it_refuses_in_one_line_what_does_not_hold(options: dict[str, Any], message: str) -> None:
    for make in (make_registry, make_registry.lease_backend):
        with pytest.raises(ValueError, match=r"fleet\.registry\.consul") as refused:
            make(options)
        assert str(refused.value).startswith(message)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (
            {"supervisor.leases.plugin_options": '{"prefix": ""}'},
            "supervisor.leases.plugin_options.prefix is",
        ),
        (
            {"supervisor.leases.plugin_options": '{"prefx": ""}'},
            "supervisor.leases.plugin_options has no option",
        ),
        (
            {"supervisor.leases.provider": "consul", "fleet.registry.consul.prefix": ""},
            ": fleet.registry.consul.",
        ),
        ({"fleet.registry.plugin_options": '{"prefix": ""}'}, ": fleet.registry.plugin_options.prefix is"),
    ],
)
def test_a_worker_names_the_key_that_was_written(overrides: dict[str, str], named: str) -> None:
    settings = load_settings(
        environ={},
        overrides={"fleet.registry.provider": "consul", "supervisor.leases.ttl_seconds": "60", **overrides},
    )

    with pytest.raises(ConfigError, match=re.escape(named)):
        choose_leases(settings, [], RecordingLogger())


def test_a_worker_names_the_written_key_of_its_cards_too() -> None:
    settings = load_settings(
        environ={},
        overrides={"fleet.registry.provider": "consul", "fleet.registry.plugin_options": '{"prefix": ""}'},
    )

    with pytest.raises(ConfigError, match=r": fleet\.registry\.plugin_options\.prefix is empty"):
        choose_provider(settings, RecordingLogger())


@pytest.mark.parametrize(
    "options",
    [
        {"address": "http://me:s3cret@host"},
        {"address": "http://s3cret@host:8500"},
        {"token": "s3cret\n"},
        {"token": "s3cret é"},
        {"token": "s3cret", "prefix": ""},
        {"prune_after_seconds": "s3cret"},
        {"prune_after_seconds": ["s3cret"]},
        {"address": "https://host", "cert_file": "a.pem", "key_file": "-----BEGIN\ns3cret"},
        {"http://me:s3cret@host": 1},
        {"s3cret": 1},
    ],
)
def test_it_shows_no_secret_when_it_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.consul") as refused:
        read_settings(options)

    assert "s3cret" not in str(refused.value)


def test_settings_that_are_printed_hold_no_token() -> None:
    assert "s3cret" not in repr(read_settings({"token": "s3cret"}))

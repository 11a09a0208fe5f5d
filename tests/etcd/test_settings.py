"""The options, and what is said about those that do not hold."""

from pathlib import Path
from typing import Any

import pytest
from drakkar.settings import load_settings
from drakkar.settings.resolve import provider_options
from drakkar_etcd import make_registry
from drakkar_etcd.settings import EtcdSettings, read_settings


def test_it_needs_no_option() -> None:
    assert read_settings({}) == EtcdSettings(endpoints=("http://127.0.0.1:2379",), prefix="/drakkar")


def test_what_variables_say_comes_as_each_option_wants_it() -> None:
    section = "DK_FLEET__REGISTRY__ETCD__"
    environ = {
        "DK_FLEET__REGISTRY__PROVIDER": "etcd",
        f"{section}ENDPOINTS": "http://a:1,http://b:2",
        f"{section}PREFIX": "7",
        f"{section}USERNAME": "12345",
        f"{section}PASSWORD": "007e1",
        f"{section}PRUNE_AFTER_SECONDS": "600",
    }

    settings = read_settings(provider_options(load_settings(environ=environ)))

    assert settings.endpoints == ("http://a:1", "http://b:2")
    assert (settings.prefix, settings.username, settings.password) == ("7", "12345", "007e1")
    assert settings.prune_after_seconds == 600


@pytest.mark.parametrize("password", ["12345", "1e5", "true", "null", "[1]", '"quoted"', "-0"])
def test_a_password_in_a_variable_is_text_whatever_it_looks_like(password: str) -> None:
    environ = {
        "DK_FLEET__REGISTRY__PROVIDER": "etcd",
        "DK_FLEET__REGISTRY__ETCD__USERNAME": "worker",
        "DK_FLEET__REGISTRY__ETCD__PASSWORD": password,
    }

    assert read_settings(provider_options(load_settings(environ=environ))).password == password


def test_it_takes_every_option() -> None:
    options = {
        "endpoints": ["https://etcd-1.example:2379", "https://[2001:db8::1]:12379/"],
        "prefix": "/fleets/search/",
        "username": "fleet",
        "password": "secret",
        "ca_file": "/etc/ca.pem",
        "cert_file": Path("/etc/worker.crt"),
        "key_file": "/etc/worker.key",
        "prune_after_seconds": 60,
    }

    assert read_settings(options) == EtcdSettings(
        endpoints=("https://etcd-1.example:2379", "https://[2001:db8::1]:12379"),
        prefix="/fleets/search",
        username="fleet",
        password="secret",
        ca_file=Path("/etc/ca.pem"),
        cert_file=Path("/etc/worker.crt"),
        key_file=Path("/etc/worker.key"),
        prune_after_seconds=60.0,
    )


def test_it_takes_endpoints_with_commas_as_etcdctl_does() -> None:
    endpoints = read_settings(
        {"endpoints": "http://127.0.0.1:1, http://127.0.0.1:2,http://127.0.0.1:1"}
    ).endpoints

    assert endpoints == ("http://127.0.0.1:1", "http://127.0.0.1:2")


def test_a_port_that_is_not_given_is_that_of_etcd() -> None:
    assert read_settings({"endpoints": ["http://etcd-1"]}).endpoints == ("http://etcd-1:2379",)


def test_it_shows_no_password() -> None:
    assert "secret" not in repr(read_settings({"username": "fleet", "password": "secret"}))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endpoints": []}, "fleet.registry.etcd.endpoints is empty"),
        ({"endpoints": 7}, "fleet.registry.etcd.endpoints must be a list of addresses, not int"),
        (
            {"endpoints": ""},
            "fleet.registry.etcd.endpoints[0] must be an address such as http://127.0.0.1:2379: ",
        ),
        ({"endpoints": ["http://a", 7]}, "fleet.registry.etcd.endpoints[1] must be an address, not int"),
        ({"endpoints": ["127.0.0.1:2379"]}, "endpoints[0] must be an address such as http://127.0.0.1:2379"),
        ({"endpoints": ["127.0.0.1:2379"]}, "it must begin with http:// or https://"),
        ({"endpoints": ["etcd:2379"]}, "it must begin with http:// or https://"),
        ({"endpoints": ["ftp://etcd"]}, "it must begin with http:// or https://"),
        ({"endpoints": ["http://a:x"]}, "its port must be a number from 1 to 65535"),
        ({"endpoints": ["http://a:0"]}, "its port must be a number from 1 to 65535"),
        ({"endpoints": ["http://a:65536"]}, "its port must be a number from 1 to 65535"),
        ({"endpoints": ["http://"]}, "it names no possible host"),
        ({"endpoints": ["http://a b"]}, "it names no possible host"),
        ({"endpoints": ["http://a\n"]}, "it names no possible host"),
        ({"endpoints": ["http://[::1"]}, "it names no possible host"),
        ({"endpoints": ["http://a:1/v3"]}, "endpoints[0] must end after the port"),
        ({"endpoints": ["http://a:1?x=y"]}, "endpoints[0] must end after the port"),
        ({"endpoints": ["http://me:secret@a:1"]}, "endpoints[0] must not hold a user name or password"),
        ({"endpoints": ["http://a", "https://b"]}, "endpoints must be all http:// or all https://"),
        ({"prefix": ""}, "fleet.registry.etcd.prefix is empty"),
        ({"prefix": "///"}, "fleet.registry.etcd.prefix is empty"),
        ({"prefix": 1e5}, "fleet.registry.etcd.prefix must be a text, not float; put it in quotes"),
        ({"prefix": None}, "fleet.registry.etcd.prefix must be a text, not NoneType"),
        ({"prefix": "a\nb"}, "fleet.registry.etcd.prefix holds a character that cannot be printed"),
        ({"prefix": "a\ud800"}, "fleet.registry.etcd.prefix holds a character that cannot be printed"),
        ({"prefix": "x" * 201}, "fleet.registry.etcd.prefix must have at most 200 characters"),
        ({"username": "fleet"}, "fleet.registry.etcd.username needs fleet.registry.etcd.password beside it"),
        ({"password": "secret"}, "fleet.registry.etcd.password needs fleet.registry.etcd.username beside it"),
        ({"username": True, "password": "b"}, "fleet.registry.etcd.username must be a text, not bool"),
        ({"username": "a", "password": [5]}, "fleet.registry.etcd.password must be a text, not list"),
        ({"ca_file": "/ca.pem"}, "fleet.registry.etcd.ca_file is for endpoints that begin with https://"),
        (
            {"endpoints": ["https://a"], "cert_file": "/c"},
            "cert_file needs fleet.registry.etcd.key_file beside it",
        ),
        (
            {"endpoints": ["https://a"], "key_file": "/k"},
            "key_file needs fleet.registry.etcd.cert_file beside it",
        ),
        ({"endpoints": ["https://a"], "ca_file": 7}, "fleet.registry.etcd.ca_file must be a path"),
        ({"endpoints": ["https://a"], "ca_file": "a\0"}, "fleet.registry.etcd.ca_file must be a path"),
        ({"endpoint": []}, "fleet.registry.etcd has no option 'endpoint', did you mean endpoints?"),
        ({"user": "a"}, "fleet.registry.etcd has no option 'user', did you mean username?"),
        (
            {"a\nb": 1},
            "fleet.registry.etcd has an option of a name that is none; those that it has are",
        ),
        ({7: 1}, "fleet.registry.etcd has an option of a name that is none"),
        ({"http://me:secret@a:1": 1}, "fleet.registry.etcd has an option of a name that is none"),
        ({"prefix": "secret\n"}, "fleet.registry.etcd.prefix holds a character that cannot be printed"),
        (
            {"endpoints": ["https://a"], "ca_file": "no-such-file"},
            f"fleet.registry.etcd.ca_file cannot be used: {Path.cwd()}/no-such-file: No such file",
        ),
        ({"prune_after_seconds": "secret"}, "must be a number of seconds above 0, not str"),
        ({"prune_after_seconds": ["secret"]}, "must be a number of seconds above 0, not list"),
        ({"prune_after_seconds": -1}, "must be a number of seconds above 0, not -1"),
        ({"endpoints": ["http://" + "x" * 64]}, "endpoints[0] must be an address such as"),
    ],
)
@pytest.mark.parametrize("make", [make_registry, make_registry.lease_backend], ids=["registry", "leases"])
def test_it_names_the_option_that_does_not_hold(make: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the message is looked at below
        make(options)

    assert told in str(refused.value)
    assert str(refused.value).isprintable()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "60", [60]])
def test_it_refuses_an_age_that_is_no_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(ValueError, match=r"prune_after_seconds must be a number of seconds above 0"):
        read_settings({"prune_after_seconds": seconds})


def test_an_age_of_any_size_is_taken_and_none_is_longer_than_etcd_grants() -> None:
    assert read_settings({"prune_after_seconds": 10**400}).prune_after_seconds == 9e9

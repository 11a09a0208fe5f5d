"""Where a server cannot listen, in one line that names the key to change."""

import errno
import socket

import pytest
from drakkar.errors import ConfigError, UnavailableError
from drakkar.server.address import listen, origin_of


@pytest.mark.parametrize("port", [None, 0, 8080])
@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_address_of_another_host_is_named_without_a_port(host: str, port: int | None) -> None:
    with pytest.raises(ConfigError) as caught:
        listen(host, port)

    reason = "Cannot assign requested address; set it to an address of this host"
    assert str(caught.value) == f"ui.host: cannot listen on {host}: {reason}"


def test_a_name_that_nobody_knows_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"^ui\.host: cannot listen on worker-1\.invalid: [^()]+; set it to"
    ):
        listen("worker-1.invalid", 8271)


def test_a_port_that_is_taken_is_a_state_of_the_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"^ui\.port: 127\.0\.0\.1:{port} is in use; "):
            listen("127.0.0.1", port)


def test_a_port_that_is_not_for_this_user_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: tuple[str, int], **_: object) -> socket.socket:
        raise OSError(errno.EACCES, f"Permission denied (while attempting to bind on address {address!r})")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(ConfigError) as caught:
        listen("127.0.0.1", 80)

    assert str(caught.value) == (
        "ui.port: cannot listen on 127.0.0.1:80: Permission denied; choose a port from 1024 on"
    )


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Fleet.example.org/w/", "https://fleet.example.org"),
        ("https://fleet.example.org:443", "https://fleet.example.org"),
        ("http://10.0.0.1:8080/", "http://10.0.0.1:8080"),
        ("http://[::1]:80/", "http://[::1]"),
        ("", ""),
    ],
)
def test_an_origin_is_told_as_browsers_do(url: str, origin: str) -> None:
    assert origin_of(url) == origin

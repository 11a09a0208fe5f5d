"""The fleet as a worker tells it, and workers that tell nothing, too much, or something else."""

import json
import re
import socket
import time
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

import pytest
from drakkar.cli import _watching
from drakkar.cli._client import MAX_BODY_BYTES, Answer, worker_url
from drakkar.cli.workers import SUBJECT
from drakkar.errors import ConfigError
from drakkar.settings import Settings
from rich.console import Console
from support.commands import Drakkar, end_by_force, end_of
from support.scripted_server import Reply, Send, reply, serving

NOW = 1796000000.0
ROW: dict[str, Any] = {
    "worker_name": "worker-1",
    "url": "http://10.0.0.1:8080/",
    "is_current": True,
    "cluster_name": "search",
    "cluster": "search",
    "last_seen_ts": NOW,
    "online": True,
    "state": "running",
    "version": "1.2.3",
}


def rows(*rows: Any, date: str | None = formatdate(NOW, usegmt=True)) -> Reply:
    return reply(json.dumps(rows).encode(), "200 OK", *([f"Date: {date}"] if date else []))


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_it_prints_a_table(drakkar: Drakkar) -> None:
    peer = ROW | {"is_current": False}
    peers = [
        peer
        | {
            "worker_name": "worker-2",
            "cluster": "",
            "online": False,
            "last_seen_ts": NOW - 61,
            "leader_for": ["gc"],
        },
        peer | {"worker_name": "worker-3", "online": None, "last_seen_ts": None, "state": "draining"},
        {"worker_name": "worker-4", "online": True, "last_seen_ts": NOW - 7200},
    ]
    leader = ROW | {"leader_for": ["gc", "lifecycle"]}
    with serving(rows(leader, *peers)) as server:
        ended = drakkar("workers", "--url", server.url)

    assert (ended.status, ended.err) == (0, "")
    head, _, *body = [line for line in ended.out.splitlines() if line.strip()]
    assert cells(head) == ["worker", "cluster", "state", "online", "last seen", "version", "leads", "url"]
    assert [cells(line) for line in body] == [
        [
            "*",
            "worker-1",
            "search",
            "running",
            "yes",
            "0 s ago",
            "1.2.3",
            "gc, lifecycle",
            "http://10.0.0.1:8080/",
        ],
        ["worker-2", "running", "no", "61 s ago", "1.2.3", "http://10.0.0.1:8080/"],
        ["worker-3", "search", "draining", "unknown", "1.2.3", "http://10.0.0.1:8080/"],
        ["worker-4", "yes", "2 h ago"],
    ]


def test_a_list_that_cannot_be_read_any_more_says_so(drakkar: Drakkar) -> None:
    def probe(**failing: float) -> Reply:
        registry = {"provider": "redis", "snapshot_age_seconds": 60.0, "failing_for_seconds": failing}
        return reply(json.dumps({"ready": True, "state": "running", "registry": registry}).encode())

    said = []
    for failing in ({"list": 45.2, "publish": 50.0}, {"publish": 50.0}):
        with serving(rows(ROW), probe=probe(**failing)) as server:
            said.append(drakkar("workers", "--url", server.url))

    assert " ".join(said[0].out.split()).endswith(
        "the store could not be read for 45 s; this is the last list, and its ages grow"
    )
    assert "could not be read" not in said[1].out
    assert [ended.status for ended in said] == [0, 0]


def test_it_prints_json(drakkar: Drakkar) -> None:
    row = ROW | {"new_key": {"a": [1, None]}, "state": "\u202eläuft"}
    with serving(rows(row)) as server:
        ended = drakkar("workers", "--url", server.url, "--json")

    assert (ended.status, ended.err) == (0, "")
    assert json.loads(ended.out) == [row]
    assert ended.out.isascii()


def test_without_the_time_of_the_worker_it_prints_when_a_peer_was_seen(drakkar: Drakkar) -> None:
    with serving(rows(ROW, date=None)) as server:
        out = drakkar("workers", "--url", server.url).out

    assert f"{datetime.fromtimestamp(NOW, UTC):%Y-%m-%d %H:%M:%S}Z" in out


@pytest.mark.parametrize(
    "date", ["nonsense", "Mon, 30 Nov 2026 01:06:40 -0000", "Mon, 30 Nov 99999 01:06:40 GMT", ""]
)
def test_an_odd_time_of_the_worker_is_no_error(date: str, drakkar: Drakkar) -> None:
    with serving(rows(ROW, date=date)) as server:
        ended = drakkar("workers", "--url", server.url)

    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_no_text_is_lost_in_a_narrow_terminal(width: str, drakkar: Drakkar) -> None:
    long = ROW | {"worker_name": "w" * 150, "url": "http://" + "u" * 150}
    with serving(rows(long)) as server:
        out = drakkar("workers", "--url", server.url, COLUMNS=width).out

    assert out.count("w") == 150 + len("worker") - len("orker")
    assert max(map(len, out.splitlines())) <= int(width)


def test_in_a_pipe_each_worker_is_one_line(drakkar: Drakkar) -> None:
    with serving(rows(*(ROW | {"worker_name": f"worker-{n}-{'x' * 100}"} for n in range(50)))) as server:
        out = drakkar("workers", "--url", server.url).out

    assert sum("worker-" in line and "http://10.0.0.1:8080/" in line for line in out.splitlines()) == 50


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[red]a[/red]", "[red]a[/red]"),
        ("[link=http://evil/]a", "[link=http://evil/]a"),
        (":smile:", ":smile:"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\nb\r\tc", "a\\u000ab\\u000d\\u0009c"),
        ("\x07\x9b", "\\u0007\\u009b"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("a\u200fb\u2066c\ufeff", "a\\u200fb\\u2066c\\ufeff"),
        ("a\u3164b\u034fc\u2800\ufe0f\U000e0100", "a\\u3164b\\u034fc\\u2800\\ufe0f\\u{e0100}"),
        (" a b  ", "\\u0020a b\\u0020\\u0020"),
        ("\ud800", "\\ud800"),
        ("Wörker 名", "Wörker 名"),
        ("x" * 5000, "x" * 197 + "..."),
    ],
)
@pytest.mark.parametrize("key", ["worker_name", "cluster", "state", "version", "url"])
def test_every_text_is_shown_as_text(key: str, text: str, shown: str, drakkar: Drakkar) -> None:
    with serving(rows(ROW | {key: text})) as server:
        ended = drakkar("workers", "--url", server.url)

    assert ended.status == 0
    assert f" {shown} " in ended.out


@pytest.mark.parametrize("key", [key for key in ROW if key != "worker_name"])
@pytest.mark.parametrize("value", [None, True, 7, -1e300, 10**30, "text", [], [1], {}, {"a": 1}])
def test_a_value_of_a_wrong_type_is_shown_or_left_out(key: str, value: Any, drakkar: Drakkar) -> None:
    console = Console(width=200, force_terminal=False)
    with console.capture() as captured:
        console.print(
            _watching.table(SUBJECT, Answer([ROW | {key: value}], None, "http://10.0.0.1:8080/"), 10)
        )

    assert "worker-1" in captured.get()


def test_it_sends_the_token_and_no_more(drakkar: Drakkar) -> None:
    with serving(rows(ROW)) as server:
        drakkar("workers", "--url", f"{server.url}base/?a=b", DK_UI__AUTH_TOKEN="a-token")
        drakkar("workers", "--url", server.url)

    with_token, without = server.requests
    assert with_token.startswith("GET /base/api/v1/workers HTTP/1.1\r\n")
    assert "\r\nauthorization: bearer a-token\r\n" in with_token.lower()
    assert "authorization" not in without.lower()


def test_it_heeds_no_proxy_of_the_environment(drakkar: Drakkar) -> None:
    with serving(rows(ROW)) as server:
        ended = drakkar(
            "workers", "--url", server.url, HTTP_PROXY="http://127.0.0.1:9/", http_proxy="http://127.0.0.1:9/"
        )

    assert ended.status == 0


REFUSALS: dict[str, tuple[Reply, str]] = {
    "unauthorized": (reply(b"", "401 Unauthorized"), "refuses with status 401; set ui.auth_token"),
    "forbidden": (reply(b"", "403 Forbidden"), "refuses with status 403; set ui.auth_token"),
    "missing": (reply(b"[]", "404 Not Found"), "answers with status 404; is it a worker?"),
    "failing": (reply(b"[]", "500 Oops"), "answers with status 500"),
    "no-content": (reply(b"", "204 No Content"), "something that is not JSON"),
    "an-odd-reason": (reply(b'{"error": [1]}', "500 Oops"), "answers with status 500; is it a worker?"),
    "a-reason": (reply(b'{"error": "\\u001b[31mtoo\\nbad"}', "500 Oops"), "status 500: \\x1b[31mtoo\\nbad"),
    "elsewhere": (reply(b"", "302 Found", "Location: http://127.0.0.1:9/"), "sends elsewhere (status 302)"),
    "page": (reply(b"<html>"), "something that is not JSON"),
    "empty": (reply(b""), "something that is not JSON"),
    "map": (reply(b"{}"), "no workers list"),
    "texts": (reply(b'["a"]'), "no workers list"),
    "rows-without-a-name": (reply(b"[{}]"), "no workers list"),
    "a-name-of-a-wrong-type": (reply(b'[{"worker_name": 7}]'), "no workers list"),
    "deep": (reply(b"[" * 1_000_000), "something that is not JSON"),
    "digits": (reply(b"[" + b"9" * 10000 + b"]"), "something that is not JSON"),
    "latin": (reply(b'[{"worker_name": "\xe9"}]'), "something that is not JSON"),
    "compressed": (reply(b"x", "200 OK", "Content-Encoding: gzip"), "an encoding that was not asked for"),
    "too-long": (reply(b"[" + b" " * MAX_BODY_BYTES), f"more than {MAX_BODY_BYTES} bytes"),
    "not-http": (lambda send: send(b"SSH-2.0-OpenSSH\r\n"), "does not answer"),
    "closing": (lambda send: None, "does not answer"),
    "half": (lambda send: send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{"), "does not answer"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_answer_that_is_none_is_one_line(name: str, drakkar: Drakkar) -> None:
    answer, error = REFUSALS[name]
    with serving(answer) as server:
        ended = drakkar("workers", "--url", server.url)

    assert (ended.status, ended.out) == (1, "")
    assert ended.error.startswith(f"{server.url} ")
    assert error in ended.error


def test_an_endless_answer_is_cut_off(drakkar: Drakkar) -> None:
    def endless(send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

    with serving(endless) as server:
        assert "answers with more than" in drakkar("workers", "--url", server.url).error


def test_a_worker_that_is_not_there_is_one_line(drakkar: Drakkar) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    ended = drakkar("workers", "--url", url)

    assert (ended.status, ended.out) == (1, "")
    assert ended.error == f"{url} does not answer: Connection refused; is a worker running there?"


@pytest.mark.parametrize("watch", [[], ["--watch"], ["--watch", "--json"]])
def test_a_worker_that_stays_silent_is_one_line(watch: list[str], drakkar: Drakkar) -> None:
    with serving(lambda send: time.sleep(60)) as server:
        started = time.monotonic()
        ended = drakkar("workers", "--url", server.url, *watch)

    assert ended.error == f"{server.url} does not answer: no answer in time; is a worker running there?"
    assert ended.status == 1
    assert 4 < time.monotonic() - started < 50


def test_a_worker_that_answers_drop_by_drop_is_one_line(drakkar: Drakkar) -> None:
    def drip(send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            send(b" ")
            time.sleep(0.5)

    with serving(drip) as server:
        started = time.monotonic()
        ended = drakkar("workers", "--url", server.url)

    assert "no answer in time" in ended.error
    assert 14 < time.monotonic() - started < 55


@pytest.mark.parametrize(
    ("ui", "expected"),
    [
        ({}, "http://127.0.0.1:8080/"),
        ({"port": 9000}, "http://127.0.0.1:9000/"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:8080/"),
        ({"host": "::"}, "http://[::1]:8080/"),
        ({"host": "2001:db8::1", "port": 1}, "http://[2001:db8::1]:1/"),
        ({"host": "worker-1.example.org"}, "http://worker-1.example.org:8080/"),
        ({"public_url": "https://example.org/w", "host": "::", "port": 1}, "https://example.org/w/"),
    ],
)
def test_it_asks_the_worker_of_the_settings(ui: dict[str, Any], expected: str) -> None:
    assert worker_url(Settings.model_validate({"ui": ui}), None) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://host", "http://host/"),
        ("https://host:8443/base", "https://host:8443/base/"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("http://host/?a=b#c", "http://host/"),
    ],
)
def test_it_asks_the_worker_that_is_given(given: str, expected: str) -> None:
    assert worker_url(Settings.model_validate({"ui": {"port": 0}}), given) == expected


@pytest.mark.parametrize(
    "given",
    [
        *("", "host", "host:8080", "//host/", "ftp://host/", "http://", "http://[::1/", "http://h:x/"),
        *("http://a b/", "http://h/\n", "http://h:0/"),
    ],
)
def test_it_asks_nothing_that_is_no_url(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^--url must be"):
        worker_url(Settings(), given)


def test_it_cannot_know_a_port_that_was_left_to_the_system() -> None:
    with pytest.raises(ConfigError, match=r"^ui\.port is 0.*--url"):
        worker_url(Settings.model_validate({"ui": {"port": 0}}), None)


def test_a_real_worker_is_listed(drakkar: Drakkar) -> None:
    with drakkar.running_worker() as (process, line):
        url = line.split()[-1]
        ended = drakkar("workers", "--url", url)
        process.terminate()
        assert end_of(process).status == 0

    assert ended.status == 0
    assert "worker-1" in ended.out


@pytest.mark.parametrize(("token", "status"), [("a-token", 0), ("another", 1), ("", 1)])
def test_a_real_worker_is_asked_with_its_token(token: str, status: int, drakkar: Drakkar) -> None:
    with drakkar.running_worker("--set=ui.auth_token=a-token") as (process, line):
        ended = drakkar("workers", "--url", line.split()[-1], DK_UI__AUTH_TOKEN=token)
        end_by_force(process)

    assert ended.status == status
    if status:
        assert "refuses with status 401; set ui.auth_token" in ended.error

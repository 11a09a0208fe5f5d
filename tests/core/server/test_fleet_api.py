"""`/api/v1/workers` and `/api/v1/identity`, asked over HTTP."""

import json
import math
import re
import time
from typing import Any

import pytest
from drakkar.fleet.testkit import make_card
from drakkar.worker import Worker
from support.scripted import Script, fails, hangs, stranger
from support.waiting import until
from support.workers import get, make_worker, rows

REQUIRED: dict[str, type | tuple[type, ...]] = {
    "worker_name": str,
    "url": str,
    "is_current": bool,
    "cluster_name": (str, type(None)),
    "cluster": str,
    "ip_address": (str, type(None)),
    "debug_port": (int, type(None)),
    "debug_url": str,
    "last_seen_ts": (float, int, type(None)),
    "online": (bool, type(None)),
}
OF_THE_CARD = ("backend", "version", "state", "started_at", "instance")


async def rows_beside(script: Script, *cards: dict[str, Any], age_seconds: float | None = 1.0) -> list[Any]:
    """The rows of a worker that has listed these cards."""
    script.strangers = [stranger(card, age_seconds) for card in cards]
    async with make_worker("worker-1") as worker:
        await until(lambda: len(worker.peers()) == len({card["worker"] for card in cards}))
        return await rows(worker)


async def row_of(script: Script, card: dict[str, Any], age_seconds: float | None = 1.0) -> dict[str, Any]:
    listed = await rows_beside(script, card, age_seconds=age_seconds)
    [row] = [row for row in listed if not row["is_current"]]
    assert isinstance(row, dict)
    return row


async def test_every_row_has_the_required_keys_with_their_types(script: Script) -> None:
    listed = await rows_beside(
        script, make_card("worker-2"), {"schema": 1, "worker": "w", "cluster": "", "url": "u"}
    )
    assert len(listed) == 3
    for row in listed:
        for key, kind in REQUIRED.items():
            assert isinstance(row[key], kind), key
            assert isinstance(row[key], bool) == (
                kind is bool or (key == "online" and row[key] is not None)
            ), key


async def test_shows_this_worker_from_its_own_state(script: Script) -> None:
    async with make_worker("worker-1", cluster_name="search") as worker:
        before = time.time()
        [row] = await rows(worker)
        assert before <= row.pop("last_seen_ts") <= time.time()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row.pop("started_at"))
        assert row == {
            "worker_name": "worker-1",
            "cluster_name": "search",
            "cluster": "search",
            "url": worker.url,
            "debug_url": worker.url,
            "is_current": True,
            "ip_address": "127.0.0.1",
            "debug_port": worker.served.port,
            "online": True,
            "backend": "python",
            "version": worker.served.identity.version,
            "state": "running",
            "instance": worker.instance,
            "leader_for": [],
        }


async def test_shows_a_peer_from_its_card_and_nothing_that_only_the_peer_knows(script: Script) -> None:
    card = make_card(
        "worker-2",
        cluster="search",
        url="http://10.0.3.17:8080/",
        backend="go",
        version="2.4.0",
        state="draining",
        started_at="2026-10-13T09:12:01.123456Z",
        instance="9c41e0b27fd34a1e",
    )
    row = await row_of(script, card)
    del row["last_seen_ts"]
    assert row == {
        "worker_name": "worker-2",
        "cluster_name": "search",
        "cluster": "search",
        "url": "http://10.0.3.17:8080/",
        "debug_url": "http://10.0.3.17:8080/",
        "is_current": False,
        "ip_address": None,
        "debug_port": None,
        "online": True,
        "backend": "go",
        "version": "2.4.0",
        "state": "draining",
        "started_at": "2026-10-13T09:12:01.123456Z",
        "instance": "9c41e0b27fd34a1e",
    }


async def test_leaves_out_what_the_card_does_not_have(script: Script) -> None:
    row = await row_of(script, {"schema": 1, "worker": "worker-2", "cluster": "", "url": "http://10.0.3.17/"})
    assert set(row) == set(REQUIRED)
    assert row["cluster_name"] is None
    assert row["cluster"] == ""


@pytest.mark.parametrize("key", OF_THE_CARD)
async def test_shows_each_optional_field_that_the_card_has(script: Script, key: str) -> None:
    card = {"schema": 1, "worker": "worker-2", "cluster": "", "url": "http://10.0.3.17/", key: "as it came"}
    assert (await row_of(script, card))[key] == "as it came"


async def test_lists_rows_with_a_cluster_first_then_by_name(script: Script) -> None:
    places = [("worker-4", ""), ("worker-0", ""), ("worker-9", "a"), ("worker-3", "b"), ("worker-2", "b")]
    listed = await rows_beside(script, *(make_card(name, cluster=cluster) for name, cluster in places))
    assert [(row["cluster"], row["worker_name"]) for row in listed] == [
        ("a", "worker-9"),
        ("b", "worker-2"),
        ("b", "worker-3"),
        ("", "worker-0"),
        ("", "worker-1"),
        ("", "worker-4"),
    ]


@pytest.mark.parametrize(
    ("age_seconds", "online"), [(0.0, True), (4.0, True), (6.0, False), (1e308, False), (None, None)]
)
async def test_tells_who_is_online(script: Script, age_seconds: float | None, online: bool | None) -> None:
    row = await row_of(script, make_card("worker-2"), age_seconds)
    assert row["online"] is online


async def test_tells_when_a_peer_was_last_seen_on_its_own_clock(script: Script) -> None:
    row = await row_of(script, make_card("worker-2", heartbeat_at="1999-01-01T00:00:00.000000Z"), 100.0)
    assert row["last_seen_ts"] == pytest.approx(time.time() - 100, abs=10)


async def test_does_not_know_when_a_peer_of_unknown_age_was_last_seen(script: Script) -> None:
    assert (await row_of(script, make_card("worker-2"), None))["last_seen_ts"] is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["gc-leader-2", "gc-leader-1", "gc-leader-2"], ["gc-leader-1", "gc-leader-2"]),
        ([], []),
        ([3, None, "gc", {"a": 1}, ["b"]], ["gc"]),
        ("gc", None),
        ({"gc": 1}, None),
        (None, None),
    ],
)
async def test_shows_what_a_peer_leads_sorted_and_only_if_its_card_says_so(
    script: Script, given: object, shown: list[str] | None
) -> None:
    row = await row_of(script, make_card("worker-2", features={"leader_for": given}))
    assert row.get("leader_for") == shown
    assert ("leader_for" in row) == (shown is not None)


@pytest.mark.parametrize(
    "name",
    [
        "größe/検索",
        "<img src=x onerror=alert(1)>",
        "</script>\"'&",
        "\u202egnp.exe\u2066",
        "\x00\x1b[31m\r\n",
        "\u2028\u2029\ufeff",
        "\U0001f6f6" * 100,
        "../../etc/passwd",
        "x" * 900,
        "__proto__",
    ],
)
async def test_hands_on_any_name_as_it_is(script: Script, name: str) -> None:
    row = await row_of(script, make_card(name, cluster=name, url=name, version=name))
    assert (row["worker_name"], row["cluster_name"], row["url"], row["version"]) == (name, name, name, name)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800", object(), {1: 2}, b"x"])
async def test_never_answers_with_invalid_json_whatever_a_provider_lists(
    script: Script, value: object
) -> None:
    bad = {**make_card("worker-2"), "version": value}
    script.strangers = [
        stranger(bad),
        stranger({**make_card("worker-3"), "features": {"leader_for": [value], "x": value}}),
        stranger(make_card("worker-4"), math.nan),
        stranger(make_card("worker-5"), math.inf),
    ]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 2)
        for path in ("api/v1/workers", "api/v1/identity", "readyz"):
            answer = await get(worker, path)
            assert answer.headers["content-type"].startswith("application/json")
            json.loads(answer.content, parse_constant=pytest.fail)
        assert [row["worker_name"] for row in await rows(worker)] == ["worker-1", "worker-4", "worker-5"]


async def test_keeps_the_last_list_while_the_store_fails_and_its_ages_grow(script: Script) -> None:
    async with make_worker() as worker, make_worker("worker-2"):
        await until(lambda: len(worker.peers()) == 1)
        script.on["list"] = fails(OSError("gone"))
        calls = script.calls.count("list")
        await until(lambda: script.calls.count("list") > calls + 3)
        first = next(row for row in await rows(worker) if not row["is_current"])
        await until(lambda: script.calls.count("list") > calls + 10)
        second = next(row for row in await rows(worker) if not row["is_current"])
        assert first["worker_name"] == second["worker_name"] == "worker-2"
        assert second["last_seen_ts"] == pytest.approx(first["last_seen_ts"], abs=0.05)  # the same moment


async def test_a_peer_that_is_not_heard_of_goes_offline_while_the_store_hangs(script: Script) -> None:
    async with make_worker(fleet__registry__offline_after_seconds="0.6") as worker, make_worker("worker-2"):
        await until(lambda: len(worker.peers()) == 1)
        script.on |= dict.fromkeys(("publish", "list"), hangs)

        await until(lambda: worker.peers()[0].liveness == "offline")
        assert {row["worker_name"]: row["online"] for row in await rows(worker)} == {
            "worker-1": True,
            "worker-2": False,
        }
        script.on.clear()


# -- identity


async def identity(worker: Worker) -> dict[str, Any]:
    answer: dict[str, Any] = (await get(worker, "api/v1/identity")).raise_for_status().json()
    return answer


async def test_tells_who_it_is(script: Script) -> None:
    async with make_worker("worker-1", cluster_name="search") as worker:
        told = await identity(worker)
        [row] = await rows(worker)
        assert told.pop("config_summary")
        assert told == {
            "worker_id": "worker-1",
            "cluster": "search",
            "instance": worker.instance,
            "backend": "python",
            "backend_version": row["version"],
            "started_at": row["started_at"],
            "url": worker.url,
            "registry_provider": "scripted",
            "lease_provider": "scripted",
        }
        assert re.fullmatch("[0-9a-f]{16}", worker.instance)


async def test_a_worker_without_a_cluster_has_none(script: Script) -> None:
    async with make_worker() as worker:
        assert (await identity(worker))["cluster"] is None


async def test_sums_up_the_configuration_on_one_line_without_secrets(script: Script) -> None:
    async with make_worker(
        ui__auth_token="hunter-2-token",
        fleet__registry__plugin_options='{"script": "default", "url": "redis://me:hunter2@10.0.0.1"}',
    ) as worker:
        answer = await get(worker, "api/v1/identity", Authorization="Bearer hunter-2-token")
        summary = answer.json()["config_summary"]
        assert "scripted" in summary
        assert "\n" not in summary
        assert "hunter" not in answer.text

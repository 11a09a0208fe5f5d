"""`/api/v1/peer/cache/changes`: the wire between workers, as a peer sees it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from drakkar.cache.changes import parse_query
from drakkar.server.models import ChangesPage
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.scripted import Script
from support.waiting import until
from support.workers import get, settings

PATH = "api/v1/peer/cache/changes"
SCOPES = "scopes must be cluster, global or both"
TOGETHER = "after_ms and after_key must be given together"
AFTER_MS = "after_ms must be an integer"
LIMIT = "limit must be an integer from 1 to 1000"


def caching(folder: Path | str, name: str = "worker-1", **more: str) -> Worker:
    base = {"storage.dir": str(folder), "cache.enabled": "true", "cache.flush_interval_seconds": "0.05"}
    keys = base | {key.replace("__", "."): text for key, text in more.items()}
    return Worker(settings("scripted", worker_name=name, **keys), environ={}, logger=RecordingLogger())


def card(script: Script) -> dict[str, Any]:
    """The features on the card of the one worker."""
    features: dict[str, Any] = json.loads(script.store.rows["worker-1"].data)["features"]
    return features


@pytest.fixture
async def worker(script: Script, tmp_path: Path) -> AsyncIterator[Worker]:
    async with caching(tmp_path / "storage") as worker:
        yield worker


async def fill(worker: Worker, *sets: tuple[str, Any, str]) -> None:
    cache = worker.cache
    assert cache is not None
    for key, value, scope in sets:
        cache.set(key, value, scope=scope)  # type: ignore[arg-type]  # a text
    await until(lambda: not cache.changed)


async def ask(worker: Worker, query: str) -> tuple[int, Any]:
    answer = await get(worker, f"{PATH}?{query}")
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


async def keys(worker: Worker, query: str) -> list[str]:
    status, page = await ask(worker, query)
    assert status == 200
    return [row["key"] for row in page["rows"]]


async def test_the_bytes_are_those_of_the_wire(worker: Worker) -> None:
    await fill(worker, ("schlüssel|\n", {"t": 'größe "x"'}, "cluster"))
    answer = await get(worker, f"{PATH}?scopes=cluster")
    [row] = answer.json()["rows"]
    ms = row["updated_at_ms"]
    assert answer.content.decode() == (
        '{"rows":[{"key":"schlüssel|\\n","scope":"cluster","value":"{\\"t\\":\\"größe \\\\\\"x\\\\\\"\\"}",'
        f'"size_bytes":21,"created_at_ms":{ms},"updated_at_ms":{ms},"expires_at_ms":null,'
        '"origin_worker_id":"worker-1"}],"more":false}'
    )
    ChangesPage.model_validate_json(answer.content, strict=True)


async def test_the_bytes_of_an_empty_page(worker: Worker) -> None:
    assert (await get(worker, f"{PATH}?scopes=global")).content == b'{"rows":[],"more":false}'


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", SCOPES),
        ("scopes=", SCOPES),
        ("scopes=local", SCOPES),
        ("scopes=memory", SCOPES),
        ("scopes=cluster,local", SCOPES),
        ("scopes=cluster,", SCOPES),
        ("scopes=,cluster", SCOPES),
        ("scopes=Cluster", SCOPES),
        ("scopes=cluster,%20global", SCOPES),
        ("scopes=cluster;limit=1", SCOPES),
        ("scopes=cluster&scopes=local", SCOPES),
        ("scopes=x&after_ms=1&limit=0", SCOPES),
        ("scopes=cluster&after_ms=1", TOGETHER),
        ("scopes=cluster&after_key=a", TOGETHER),
        ("scopes=cluster&after_ms=x&limit=0", TOGETHER),
        *(
            (f"scopes=cluster&after_ms={ms}&after_key=a&limit=0", AFTER_MS)
            for ms in (
                *("", "x", "-", "--1", "%2B1", "1.0", "1e3", "%201", "1%20", "1%0A", "1_0", "0x1", "null"),
                *("%D9%A1", "%EF%BC%91", "9223372036854775808", "-9223372036854775809"),
                *("000000000000000000001", "-00000000000000000001", "9" * 400),
            )
        ),
        *(
            (f"scopes=cluster&limit={limit}", LIMIT)
            for limit in ("0", "-1", "1001", "", "x", "%2B1", "1.0", "-0", "000000000000000000001", "9" * 30)
        ),
        ("scopes=cluster&limit=1&limit=0", LIMIT),
    ],
)
async def test_a_question_that_does_not_hold_is_refused_in_the_words_of_the_wire(
    query: str, error: str
) -> None:
    with pytest.raises(ValueError, match=f"^{error}$"):
        parse_query(dict(httpx.QueryParams(query).multi_items()))


async def test_a_refusal_has_the_bytes_of_the_wire(worker: Worker) -> None:
    answer = await get(worker, f"{PATH}?scopes=local")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b'{"error":"scopes must be cluster, global or both"}'


@pytest.mark.parametrize(
    "query",
    [
        "scopes=cluster",
        "scopes=local&scopes=cluster",
        "scopes=cluster&limit=0&limit=01",
        "scopes=cluster,cluster&unknown=1",
        "scopes=cluster&after_ms=-0&after_key=",
        "scopes=cluster&after_ms=007&after_key=z",
        "scopes=cluster&after_ms=00000000000000000001&after_key=z",
        "scopes=cluster&after_ms=-9223372036854775808&after_key=z",
        "scopes=cluster&after_ms=9223372036854775807&after_ms=5&after_key=z",
        "scopes=cluster&after_ms=1&after_key=%ff",
        "scopes=cluster&after_ms=1&after_key=%00",
        "scopes=cluster&after_key&after_ms=1",
    ],
)
async def test_a_question_that_holds_is_answered(worker: Worker, query: str) -> None:
    await fill(worker, ("a", 1, "cluster"))
    assert await keys(worker, query) == ["a"]


async def test_nothing_comes_after_the_last_place_of_all(worker: Worker) -> None:
    await fill(worker, ("a", 1, "cluster"))
    assert await keys(worker, "scopes=cluster&after_ms=9223372036854775807&after_key=") == []


async def test_only_rows_of_the_scopes_that_were_asked_for_come(worker: Worker) -> None:
    await fill(worker, ("c", 1, "cluster"), ("g", 1, "global"), ("l", 1, "local"), ("m", 1, "memory"))
    assert await keys(worker, "scopes=cluster") == ["c"]
    assert await keys(worker, "scopes=global") == ["g"]
    assert await keys(worker, "scopes=global,cluster,global") == ["c", "g"]


async def test_goes_on_after_the_place_that_is_given(worker: Worker) -> None:
    await fill(worker, *((f"k{number}/ä&", number, "cluster") for number in range(5)))
    found: list[str] = []
    query, more = "scopes=cluster&limit=2", True
    while more:
        status, page = await ask(worker, query)
        assert status == 200
        found += [row["key"] for row in page["rows"]]
        more, last = page["more"], page["rows"][-1]
        query = f"scopes=cluster&limit=2&after_ms={last['updated_at_ms']}&after_key={quote(last['key'])}"
    assert found == [f"k{number}/ä&" for number in range(5)]


async def test_the_limit_is_five_hundred_unless_given(worker: Worker) -> None:
    await fill(worker, *((f"k{number}", number, "cluster") for number in range(501)))
    assert len(await keys(worker, "scopes=cluster")) == 500
    assert len(await keys(worker, "scopes=cluster&limit=1000")) == 501


# -- when there is nothing to share


@pytest.mark.parametrize(
    "off",
    [{"cache__enabled": "false"}, {"fleet__cache_exchange__enabled": "false"}, {"storage__dir": ""}],
    ids=str,
)
async def test_a_worker_that_shares_nothing_says_so(
    script: Script, tmp_path: Path, off: dict[str, str]
) -> None:
    async with caching(tmp_path / "storage", **off) as worker:
        assert (await ask(worker, "scopes=cluster"))[0] == 404
        assert (await ask(worker, "scopes=x")) == (400, {"error": SCOPES}), "what is asked is checked first"
        await until(lambda: script.workers() == ["worker-1"])
        assert "cache" not in card(script)


async def test_rows_that_cannot_be_read_are_unavailable(worker: Worker) -> None:
    service = worker._caching._service  # type: ignore[union-attr]  # it has one
    store = service._store
    assert store is not None
    await service.thread.run(store.close)
    status, answer = await ask(worker, "scopes=cluster")
    assert (status, [*answer]) == (503, ["error"])


async def test_rows_that_take_too_long_are_unavailable(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drakkar.cache.service.ANSWER_SECONDS", 0.1)
    service = worker._caching._service  # type: ignore[union-attr]  # it has one
    waiting = asyncio.Event()
    loop = asyncio.get_running_loop()
    blocked = asyncio.ensure_future(
        service.thread.run(asyncio.run_coroutine_threadsafe(waiting.wait(), loop).result)
    )
    assert (await ask(worker, "scopes=cluster"))[0] == 503
    waiting.set()
    await blocked
    assert (await ask(worker, "scopes=cluster"))[0] == 200


# -- who may ask


async def test_peers_need_no_token(script: Script, tmp_path: Path) -> None:
    async with caching(tmp_path / "storage", ui__auth_token="n0t-a-real-token") as worker:
        await fill(worker, ("a", 1, "cluster"))
        assert await keys(worker, "scopes=cluster") == ["a"]
        assert (await get(worker, f"{PATH}/")).status_code in (307, 401, 404)
        assert (await get(worker, "api/v1/workers")).status_code == 401


@pytest.mark.parametrize(
    "headers", [{"Host": "rebound.example.org"}, {"Origin": "http://evil.example.org"}, {"Origin": "null"}]
)
async def test_pages_of_others_may_not_ask(worker: Worker, headers: dict[str, str]) -> None:
    assert (await get(worker, f"{PATH}?scopes=cluster", **headers)).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_written(worker: Worker, method: str) -> None:
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        assert (await client.request(method, f"{worker.url}{PATH}?scopes=cluster")).status_code == 405


# -- two workers


async def test_a_value_set_on_one_worker_is_read_on_another(script: Script, tmp_path: Path) -> None:
    quick = {"fleet__cache_exchange__interval_seconds": "0.1"}
    async with (
        caching(tmp_path / "storage", **quick) as one,
        caching(tmp_path / "storage", "worker-2", **quick) as other,
    ):
        assert one.cache is not None
        assert other.cache is not None
        one.cache.set("a", {"b": [1, "ä"]}, scope="cluster")
        async with asyncio.timeout(20):
            while await other.cache.get("a") != {"b": [1, "ä"]}:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.02)


async def test_the_card_shows_the_newest_rows(script: Script, tmp_path: Path) -> None:
    async with caching(tmp_path / "storage") as worker:
        await until(lambda: script.workers() == ["worker-1"])
        assert card(script)["cache"] == {}
        await fill(worker, ("a", 1, "cluster"), ("b" * 200, 1, "global"), ("c", 1, "local"))
        rows = json.loads((await get(worker, f"{PATH}?scopes=cluster,global")).content)["rows"]
        marks = {row["scope"]: {"key": row["key"][:128], "ms": row["updated_at_ms"]} for row in rows}

        def shown() -> bool:
            return bool(card(script)["cache"] == marks)

        await until(shown)


async def test_the_metrics_are_there_from_the_start(worker: Worker) -> None:
    text = (await get(worker, "metrics")).text
    for outcome in ("ok", "http_error", "timeout", "transport_error", "bad_body"):
        sample = f'drakkar_fleet_peer_requests_total{{endpoint="cache_changes",outcome="{outcome}"}} 0.0'
        assert sample in text
    assert 'drakkar_fleet_peer_request_duration_seconds_count{endpoint="cache_changes"} 0.0' in text

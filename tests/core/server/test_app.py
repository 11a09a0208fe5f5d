"""Probes, metrics and the description of the API."""

import json
import time
from typing import Any

import httpx
import pytest
from drakkar.fleet.testkit import make_card
from drakkar.server.models import Health, Readiness, WorkerInfo, WorkerRow
from drakkar.worker import Worker
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter
from support.scripted import Script, fails, hangs, stranger
from support.waiting import until
from support.workers import get, make_worker

# Of the registry: type, and the label with its values.
METRICS: dict[str, tuple[str, dict[str, set[str]]]] = {
    "drakkar_fleet_peers": ("gauge", {"state": {"online", "offline", "unknown"}}),
    "drakkar_fleet_registry_errors": ("counter", {"op": {"publish", "list", "withdraw"}}),
    "drakkar_fleet_registry_duration_seconds": ("histogram", {"op": {"publish", "list", "withdraw"}}),
    "drakkar_fleet_registry_snapshot_age_seconds": ("gauge", {}),
    "drakkar_fleet_duplicate_worker_name": ("counter", {}),
}


async def ready(worker: Worker) -> dict[str, Any]:
    answer = await get(worker, "readyz")
    assert answer.status_code == 200
    told: dict[str, Any] = json.loads(answer.content, parse_constant=pytest.fail)
    return told


async def test_is_healthy_while_its_loop_answers(script: Script) -> None:
    script.on |= dict.fromkeys(("publish", "list"), fails(OSError("gone")))
    async with make_worker() as worker:
        answer = await get(worker, "healthz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_is_ready_when_it_runs(script: Script) -> None:
    async with make_worker() as worker:
        await until(lambda: "list" in script.calls)
        told = await ready(worker)
        age = told["registry"].pop("snapshot_age_seconds")
        assert 0 <= age < 5
        assert told == {
            "ready": True,
            "state": "running",
            "registry": {"provider": "scripted", "failing_for_seconds": {}},
        }


@pytest.mark.parametrize("how", [fails(OSError("gone")), hangs])
async def test_stays_ready_while_the_store_fails_and_tells_since_when(script: Script, how: Any) -> None:
    async with make_worker(fleet__registry__timeout_seconds="0.2") as worker:
        await until(lambda: len(script.workers()) == 1)
        began = time.monotonic()
        script.on |= {"publish": how, "list": how}

        def failing() -> dict[str, float]:
            health = worker.registry_health()
            assert health is not None
            return health.failing

        await until(lambda: failing().keys() == {"publish", "list"})
        first = (await ready(worker))["registry"]
        await until(lambda: failing()["publish"] > first["failing_for_seconds"]["publish"] + 0.3)
        second = (await ready(worker))["registry"]
        for op in ("publish", "list"):
            assert 0 <= first["failing_for_seconds"][op] < second["failing_for_seconds"][op]
            assert second["failing_for_seconds"][op] <= time.monotonic() - began
        assert first["snapshot_age_seconds"] < second["snapshot_age_seconds"]
        script.on.clear()
        await until(lambda: failing() == {})
        assert (await ready(worker))["registry"]["failing_for_seconds"] == {}


async def test_stays_ready_when_the_store_could_not_start_and_tells_since_when(script: Script) -> None:
    script.on["start"] = fails(OSError("no route"))
    async with make_worker() as worker:
        told = await ready(worker)
        assert told["registry"]["provider"] == "none"
        assert told["registry"]["failing_for_seconds"]["start"] >= 0


async def test_is_ready_without_a_registry(script: Script) -> None:
    async with make_worker(provider="none") as worker:
        assert (await ready(worker))["registry"]["provider"] == "none"


# -- metrics


async def families(worker: Worker) -> dict[str, Any]:
    answer = await get(worker, "metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


async def test_has_every_metric_of_the_registry_from_the_start(script: Script) -> None:
    async with make_worker() as worker:
        found = await families(worker)
    for name, (kind, labels) in METRICS.items():
        family = found[name]
        assert family.type == kind, name
        values: dict[str, set[str]] = {}
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
        values.pop("le", None)
        assert values == labels, name


async def test_counters_and_histograms_have_the_names_that_others_ask_for(script: Script) -> None:
    async with make_worker() as worker:
        text = (await get(worker, "metrics")).text
    for name in (
        'drakkar_fleet_peers{state="online"}',
        'drakkar_fleet_registry_errors_total{op="publish"}',
        'drakkar_fleet_registry_duration_seconds_bucket{le="+Inf",op="list"}',
        'drakkar_fleet_registry_duration_seconds_count{op="withdraw"}',
        "drakkar_fleet_registry_snapshot_age_seconds",
        "drakkar_fleet_duplicate_worker_name_total",
    ):
        assert f"\n{name} " in text, name


async def test_metrics_follow_what_happens(script: Script) -> None:
    script.strangers = [
        stranger(make_card("worker-2"), 1.0),
        stranger(make_card("worker-3"), 100.0),
        stranger(make_card("worker-4"), None),
        stranger(make_card("worker-1", instance="0123456789abcdef"), 1.0),
    ]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 3)
        script.on["publish"] = fails(OSError("gone"))
        calls = script.calls.count("publish")
        await until(lambda: script.calls.count("publish") > calls + 1)
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in (await families(worker)).values()
            for sample in family.samples
        }
        script.on.clear()
    assert [found["drakkar_fleet_peers", state] for state in ("online", "offline", "unknown")] == [1, 1, 1]
    assert found["drakkar_fleet_registry_errors_total", "publish"] >= 1
    assert found["drakkar_fleet_registry_errors_total", "list"] == 0
    assert found["drakkar_fleet_registry_duration_seconds_count", "list"] >= 1
    assert found["drakkar_fleet_duplicate_worker_name_total",] == 1
    assert found["drakkar_fleet_registry_snapshot_age_seconds",] < 5


# -- the description


async def test_describes_its_api(script: Script) -> None:
    async with make_worker() as worker:
        document = (await get(worker, "openapi.json")).raise_for_status().json()
        assert document["openapi"].startswith("3.")
        assert document["info"]["version"] == worker.served.identity.version
    assert set(document["paths"]) == {
        "/api/v1/workers",
        "/api/v1/identity",
        "/api/v1/history",
        "/api/v1/events",
        "/api/v1/peer/cache/changes",
        "/healthz",
        "/readyz",
        "/metrics",
    }


async def test_describes_what_comes_back(script: Script) -> None:
    script.strangers = [
        stranger(make_card("worker-2", features={"leader_for": ["gc"]})),
        stranger({"schema": 1, "worker": "worker-3", "cluster": "a", "url": "u"}, None),
    ]
    async with make_worker() as worker:
        await until(lambda: len(worker.peers()) == 2)
        document = (await get(worker, "openapi.json")).json()
        TypeAdapter(list[WorkerRow]).validate_json((await get(worker)).content, strict=True)
        WorkerInfo.model_validate_json((await get(worker, "api/v1/identity")).content, strict=True)
        Health.model_validate_json((await get(worker, "healthz")).content, strict=True)
        Readiness.model_validate_json((await get(worker, "readyz")).content, strict=True)
    schemas = document["components"]["schemas"]
    answers = {"WorkerRow", "WorkerInfo", "Health", "Readiness", "RegistryReadiness"}
    answers |= {"HistoryAnswer", "HistoryRow", "LeaderSpan"}
    assert set(schemas) == answers | {"ChangesPage", "CacheRow"}
    required = {"worker_name", "url", "is_current", "cluster", "online"}
    assert required <= set(schemas["WorkerRow"]["required"])
    assert "backend" not in schemas["WorkerRow"]["required"]
    for path, answer in {"/api/v1/workers": "array", "/api/v1/identity": None}.items():
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema.get("type") == answer


@pytest.mark.parametrize("path", ["healthz", "readyz"])
async def test_probes_may_ask_for_the_status_alone(script: Script, path: str) -> None:
    async with make_worker() as worker, httpx.AsyncClient(timeout=10, trust_env=False) as client:
        answer = await client.head(f"{worker.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["docs", "redoc"])
async def test_has_no_page_that_loads_its_viewer_from_elsewhere(script: Script, path: str) -> None:
    async with make_worker() as worker:
        assert (await get(worker, path)).status_code == 404


@pytest.mark.parametrize("token", ["", "n0t-a-real-token"])
@pytest.mark.parametrize(
    ("method", "path", "status", "why"),
    [
        ("GET", "nowhere", 404, "no such route"),
        ("GET", "assets/nothing.js", 404, "no such route"),
        ("GET", "api/v1/leases", 404, "this worker runs no background workers"),
        ("POST", "api/v1/workers", 405, "no such method of this route"),
        ("PUT", "", 405, "no such method of this route"),
        ("HEAD", "api/v1/identity", 405, ""),
    ],
)
async def test_a_refusal_tells_why_in_one_shape(
    script: Script, token: str, method: str, path: str, status: int, why: str
) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        make_worker(ui__auth_token=token) as worker,
        httpx.AsyncClient(timeout=10, trust_env=False, headers=headers) as client,
    ):
        answer = await client.request(method, f"{worker.url}{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    if why:
        assert answer.json() == {"error": why}
    if status == 405:
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("path", ["login", "logout"])
async def test_the_login_refuses_in_that_shape_too(script: Script, path: str) -> None:
    async with make_worker(ui__auth_token="n0t-a-real-token") as worker:
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            answer = await client.delete(f"{worker.url}{path}")
            assert (answer.status_code, answer.json()) == (405, {"error": "no such method of this route"})
        if path == "logout":
            answer = await get(worker, path)
            assert (answer.status_code, answer.json()) == (405, {"error": "no such method of this route"})

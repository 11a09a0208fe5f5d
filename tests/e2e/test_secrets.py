"""Trial "Secrets in logs; alarms that cry too much or not at all", for the registry."""

import json
import time
from functools import partial
from pathlib import Path

from support.commands import install
from support.processes import Fleet, WorkerProcess, until_all_see, wait_for

TOKEN = "hunter2-0123456789"
URL = "redis://me:hunter2@10.0.0.1:6379/0?password=hunter2"
OPTIONS = json.dumps({"url": URL, "password": "hunter2", "nodes": [{"token": "hunter2", "url": URL}]})
PATHS = ["", "api/v1/workers", "api/v1/identity", "healthz", "readyz", "metrics", "openapi.json", "nowhere"]

LEAKY = '''
"""A provider whose client library writes the address into every error."""

class Leaky:
    def __init__(self, options):
        self._options = options

    async def start(self, ctx):
        ctx.logger.debug("leaky_started", url=self._options["url"], options=dict(self._options))
        ctx.logger.warning("leaky_failed", error=ConnectionError("cannot reach " + self._options["url"]))

    async def _fail(self):
        try:
            raise ValueError("bad address " + self._options["url"])
        except ValueError as error:
            raise ConnectionError(f"{self._options['url']} refused, tried {self._options['url']}") from error

    async def publish(self, card):
        await self._fail()

    async def list(self):
        await self._fail()

    async def withdraw(self, worker, instance):
        await self._fail()

    async def stop(self):
        await self._fail()
'''


def everything_it_shows(worker: WorkerProcess) -> str:
    """What a worker tells over HTTP, with the token and without, in its log and as its process title."""
    shown = [worker.get(path).text + repr(worker.get(path).headers) for path in PATHS]
    anonymous = WorkerProcess(worker.name, worker.process, worker.log, url=worker.url)
    shown += [anonymous.get(path).text for path in PATHS]
    proc = Path(f"/proc/{worker.pid}")
    shown += [proc.joinpath(name).read_text() for name in ("cmdline", "comm")]
    return "\n".join([*shown, worker.log.read_text()])


def test_the_token_shows_nowhere(fleet: Fleet) -> None:
    one, two = fleet.start("worker-1", "worker-2", settings={"ui.auth_token": TOKEN})
    until_all_see([one, two], ["worker-1", "worker-2"])
    shown = everything_it_shows(one)
    for path in fleet.cards.iterdir():
        shown += path.read_text()
    assert "worker-1" in shown
    assert "hunter2" not in shown
    assert one.stop() == 0
    assert "hunter2" not in one.log.read_text()


def test_passwords_among_the_options_show_nowhere(fleet: Fleet) -> None:
    worker = fleet.start_one(
        "worker-1",
        {
            "fleet.registry.provider": "none",
            "fleet.registry.plugin_options": OPTIONS,
            "fleet.registry.redis": OPTIONS,
        },
    )
    assert "hunter2" not in everything_it_shows(worker)
    assert worker.stop() == 0
    assert "hunter2" not in worker.log.read_text()


def test_passwords_in_the_errors_of_a_store_show_nowhere(fleet: Fleet, tmp_path: Path) -> None:
    install(tmp_path / "plugins", "drakkar-leaky", {"leaky": "leaky:Leaky"}, {"leaky.py": LEAKY})
    worker = fleet.launch(
        "worker-1",
        {"fleet.registry.provider": "leaky", "fleet.registry.plugin_options": json.dumps({"url": URL})},
        PYTHONPATH=str(tmp_path / "plugins"),
    )
    worker.wait_until_it_runs()
    wait_for(lambda: worker.metric('drakkar_fleet_registry_errors_total{op="list"}') >= 2)
    shown = everything_it_shows(worker)
    assert worker.stop() == 0
    shown += worker.log.read_text()
    for event in ("leaky_failed", "fleet_registry_publish_failed", "fleet_registry_list_failed"):
        [line] = worker.events(event)
        assert "redis://***@10.0.0.1" in line["error"]
    assert len(worker.events("fleet_registry_withdraw_failed")) == 1
    assert len(worker.events("fleet_registry_stop_failed")) == 1
    assert "hunter2" not in shown


def test_an_outage_costs_little_and_is_told_rarely(fleet: Fleet, long: bool) -> None:
    minutes = 2 if long else 0.15
    worker = fleet.start_one("worker-1")
    wait_for(lambda: worker.online() == {"worker-1": True} and fleet.card("worker-1").exists())
    fleet.card("worker-1").unlink()
    for folder in (fleet.cards, fleet.cards.parent):
        wait_for(partial(remove, folder))
    fleet.cards.parent.write_text("now a file")  # the folder cannot be made again
    wait_for(lambda: worker.metric('drakkar_fleet_registry_errors_total{op="publish"}') >= 1)
    cpu, began = worker.cpu_seconds(), time.monotonic()
    failures = worker.metric('drakkar_fleet_registry_errors_total{op="publish"}')
    time.sleep(minutes * 60)
    elapsed = time.monotonic() - began
    assert worker.metric('drakkar_fleet_registry_errors_total{op="publish"}') > failures + 3
    assert (worker.cpu_seconds() - cpu) / elapsed < 0.1
    told = worker.get("readyz")
    assert told.status_code == 200
    failing = told.json()["registry"]["failing_for_seconds"]
    assert failing.keys() == {"publish", "list"}
    assert all(elapsed - 5 <= age for age in failing.values())
    assert worker.get("healthz").status_code == 200
    lines = worker.log.read_text().splitlines()
    assert len(lines) <= 2 + 2 * (1 + elapsed / 60)
    fleet.cards.parent.unlink()
    wait_for(lambda: len(worker.events("fleet_registry_recovered")) == 2)
    assert all(line["after_seconds"] >= elapsed - 5 for line in worker.events("fleet_registry_recovered"))
    assert worker.stop() == 0


def remove(folder: Path) -> bool:
    """Whether the folder is gone; a worker may just have written into it."""
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return False
    return True

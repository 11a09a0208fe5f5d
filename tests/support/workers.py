"""Workers in this process, with what a test needs around them."""

import asyncio
import socket
from typing import Any

import httpx
from drakkar.settings import Settings, load_settings
from drakkar.worker import Worker
from support.log import RecordingLogger
from support.servers import free_ports

QUICK = {
    "fleet.registry.heartbeat_seconds": "0.05",
    "fleet.registry.refresh_seconds": "0.05",
    "fleet.registry.offline_after_seconds": "5",
    "fleet.registry.timeout_seconds": "1",
}


def settings(provider: str = "scripted", **overrides: str) -> Settings:
    """Settings as the command line makes them; in the names of keys `__` stands for a dot. A free port, short
    periods, and no storage folder but one that is named."""
    keys = {key.replace("__", "."): text for key, text in overrides.items()}
    base = {"fleet.registry.provider": provider, "ui.port": "0", "storage.dir": ""}
    return load_settings(environ={}, overrides=base | QUICK | keys)


def make_worker(
    name: str = "worker-1",
    provider: str = "scripted",
    *,
    log: RecordingLogger | None = None,
    **overrides: str,
) -> Worker:
    """A worker that looks at nothing but its settings."""
    logger = log if log is not None else RecordingLogger()
    return Worker(settings(provider, worker_name=name, **overrides), environ={}, logger=logger)


async def get(worker: Worker, path: str = "api/v1/workers", **headers: str) -> httpx.Response:
    """Ask a worker over its own port."""
    assert worker.url is not None
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        return await client.get(worker.url + path, headers=headers)


async def rows(worker: Worker) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await get(worker)).raise_for_status().json()
    return listed


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    [port] = free_ports(1)
    return port


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def other_tasks() -> set[str]:
    """The tasks beside the one that asks."""
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}

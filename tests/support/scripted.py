"""A provider plugin named `scripted`: sound, until a test tells it otherwise. For tests of the whole worker,
which finds its provider by name."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.provider import PeerCard, PeerCardList, RegistryContext
from support.commands import install
from support.memory_registry import MemoryRegistry, Store


@dataclass
class Script:
    """What the providers of one test share. `on[op]` runs before, or raises instead of, the usual answer."""

    store: Store = field(default_factory=Store)
    strangers: PeerCardList = field(default_factory=list)
    """Listed beside the published cards, as they are."""

    on: dict[str, Callable[[], Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    contexts: list[RegistryContext] = field(default_factory=list)
    """What each start was given."""

    def workers(self) -> list[str]:
        """Whose cards the store holds."""
        return sorted(self.store.rows)

    async def play(self, op: str) -> None:
        self.calls.append(op)
        if op in self.on:
            result = self.on[op]()
            if asyncio.iscoroutine(result):
                await result


class ScriptedRegistry(MemoryRegistry):
    def __init__(self, script: Script) -> None:
        super().__init__(script.store)
        self._script = script

    async def start(self, ctx: RegistryContext) -> None:
        self._script.contexts.append(ctx)
        await self._script.play("start")
        await super().start(ctx)

    async def publish(self, card: dict[str, Any]) -> None:
        await self._script.play("publish")
        await super().publish(card)

    async def list(self) -> PeerCardList:
        await self._script.play("list")
        return [*await super().list(), *self._script.strangers]

    async def withdraw(self, worker: str, instance: str) -> None:
        await self._script.play("withdraw")
        await super().withdraw(worker, instance)

    async def stop(self) -> None:
        await self._script.play("stop")


_SCRIPTS: dict[str, Script] = {}


def make_registry(options: Mapping[str, Any]) -> ScriptedRegistry:
    return ScriptedRegistry(_SCRIPTS[options.get("script", "default")])


@contextmanager
def scripted_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Install the plugin, as a distribution's metadata in `folder`, for as long as this lasts."""
    install(folder, "drakkar-scripted-plugin", {"scripted": f"{__name__}:make_registry"}, {})
    monkeypatch.syspath_prepend(folder)
    _SCRIPTS["default"] = Script()
    try:
        yield _SCRIPTS["default"]
    finally:
        _SCRIPTS.clear()


async def hangs() -> None:
    """A store that never answers."""
    await asyncio.Event().wait()


def fails(error: BaseException) -> Callable[[], None]:
    """A store that answers with `error`."""

    def fail() -> None:
        raise error

    return fail


def stranger(card: Any, age_seconds: float | None = 1.0) -> PeerCard:
    return PeerCard(card, age_seconds)

"""Lease backends that each break one promise of the contract, and keep the others as far as they can."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from drakkar.leases.backend import Held, Lease, LeaseContext, LeaseInfo, Renewal
from drakkar.leases.memory import MemoryLeases, MemoryStore
from support.session_leases import Record, SessionLeases


class Broken(MemoryLeases):
    """Sound so far. Its helpers are there for the broken ones."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.store = store
        self.ctx: LeaseContext | None = None

    async def start(self, ctx: LeaseContext) -> None:
        self.ctx = ctx
        await super().start(ctx)

    @property
    def me(self) -> LeaseContext:
        assert self.ctx is not None
        return self.ctx

    def shared(self, make: Any) -> Any:
        """What all backends of one store share beside it: one object for each class."""
        extra = self.store.__dict__.setdefault(type(self).__name__, None)
        if extra is None:
            extra = self.store.__dict__[type(self).__name__] = make()
        return extra


class GrantsTwice(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        if isinstance(answer, Held):
            self.store.last_token += 1
            return Lease(name, self.me.holder, self.store.last_token, self.me.ttl_seconds)
        return answer


class LooksBeforeItTakes(Broken):
    """Not in one atomic step."""

    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.live(name)
        await asyncio.sleep(0)
        if record is None:
            self.store.records.pop(name, None)
        return await super().acquire(name)


class LooksBeforeItTakesOver(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        expired = name in self.store.records and self.store.live(name) is None
        await asyncio.sleep(0)
        if expired:
            del self.store.records[name]
        with contextlib.suppress(KeyError):
            return await super().acquire(name)
        return Held()


class RefusesItsHolder(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        if (record := self.store.live(name)) is not None:
            return Held(record.holder)
        return await super().acquire(name)


class GrantsAnew(Broken):
    """To its holder, under another token."""

    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.live(name)
        if record is not None and record.holder == self.me.holder:
            del self.store.records[name]
        return await super().acquire(name)


class KeepsTheOldTtl(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.live(name)
        if record is not None and record.holder == self.me.holder:
            return Lease(name, record.holder, record.token, self.me.ttl_seconds)
        return await super().acquire(name)


class TellsWhatIsLeft(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.live(name)
        if record is not None and record.holder == self.me.holder:
            left = record.expires_at - self.store.clock.elapsed()
            return Lease(name, record.holder, record.token, left)
        return await super().acquire(name)


class GrantsOntoAnOldSession(SessionLeases):
    """The session is as old as its first lease."""

    def keep_alive(self) -> None:
        if not self.store.alive(self.session):
            super().keep_alive()

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        if self.store.alive(self.session):
            super().keep_alive()
        return await super().renew(leases)


class LosesAllButTheNewest(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        await asyncio.sleep(0)
        mine = [key for key, record in self.store.records.items() if record.holder == self.me.holder]
        for key in mine if len(mine) >= 10 else ():
            del self.store.records[key]
        return await super().acquire(name)


class Renames(Broken):
    """Keeps a lease under what it makes of its name."""

    def stored(self, name: str) -> str:
        return name

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(self.stored(name))
        return replace(answer, name=name) if isinstance(answer, Lease) else answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        asked = {self.stored(lease.name): lease.name for lease in leases}
        renewal = await super().renew([replace(lease, name=self.stored(lease.name)) for lease in leases])
        return Renewal(
            [replace(lease, name=asked[lease.name]) for lease in renewal.kept],
            [replace(lease, name=asked[lease.name]) for lease in renewal.lost],
        )

    async def release(self, name: str, token: int | None = None) -> None:
        await super().release(self.stored(name), token)


class TakesASlashForItsOwn(Renames):
    def stored(self, name: str) -> str:
        return name.strip("/").replace("//", "/")


class KnowsNoCapitals(Renames):
    def stored(self, name: str) -> str:
        return name.casefold()


class CutsLongNames(Renames):
    def stored(self, name: str) -> str:
        return name[-180:]


class StripsNames(Renames):
    def stored(self, name: str) -> str:
        return name.strip()


class ReleasesAFolder(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        for other in [other for other in self.store.records if other.startswith(name)]:
            await super().release(other, token if other == name else None)


class ListsEncodedNames(Broken):
    async def list(self) -> Sequence[LeaseInfo]:
        return [replace(row, name=row.name.replace("/", "%2F")) for row in await super().list()]


class RefusesLongNames(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        if len(name.encode()) > 255:
            raise OSError(36, "File name too long")
        return await super().acquire(name)


class TokensRepeat(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return replace(answer, token=1) if isinstance(answer, Lease) else answer

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        held = {lease.name: self.store.records.get(lease.name) for lease in leases}
        known = [replace(lease, token=record.token) for lease in leases if (record := held[lease.name])]
        renewal = await super().renew(known)
        return Renewal([replace(lease, token=1) for lease in renewal.kept], renewal.lost)


class CountsPerRecord(Broken):
    """The counter goes with the record, as a version that a store keeps of each key."""

    async def acquire(self, name: str) -> Lease | Held:
        if self.store.live(name) is None:
            old = self.store.records.get(name)
            self.store.last_token = 0 if old is None else old.token
        return await super().acquire(name)


class ExpiryForgetsTheToken(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        if name in self.store.records and self.store.live(name) is None:
            self.store.last_token = self.store.records.pop(name).token - 1
        return await super().acquire(name)


class CountsPerProcess(Broken):
    """From the start of the process, as it were."""

    async def start(self, ctx: LeaseContext) -> None:
        await super().start(ctx)
        if not self.store.records:
            self.store.last_token = 0


class HoldsByWorkerName(Broken):
    async def start(self, ctx: LeaseContext) -> None:
        await super().start(replace(ctx, instance="same"))

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return replace(answer, holder=self.me.holder) if isinstance(answer, Lease) else answer


class NeverRenews(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        return Renewal(kept=list(leases))


class RenewsHalf(Broken):
    """By half a ttl."""

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        renewal = await super().renew(leases)
        for lease in renewal.kept:
            self.store.records[lease.name].expires_at -= 0.5 * self.me.ttl_seconds
        return renewal


class TellsNoTtl(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        renewal = await super().renew(leases)
        return Renewal([replace(lease, ttl_seconds=0.0) for lease in renewal.kept], renewal.lost)


class AnswersWithTheNewest(Broken):
    """Of the name, whoever holds it."""

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        renewal = await super().renew(leases)
        return Renewal([replace(lease, token=self.store.last_token + 7) for lease in renewal.kept])


class NeedsALease(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        first = next(iter(leases))
        renewal = await super().renew(leases)
        return Renewal(renewal.kept, renewal.lost or [lease for lease in [first] if not renewal.kept])


class ExpiresTooEarly(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.live(name)
        if record is not None and record.expires_at - self.store.clock.elapsed() < 0.4 * self.me.ttl_seconds:
            del self.store.records[name]
        return await super().acquire(name)


class NeverExpires(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.records.get(name)
        if record is not None and record.holder != self.me.holder:
            return Held(record.holder)
        return await super().acquire(name)


class RenewsALostLease(Broken):
    """Whoever has it now."""

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        for lease in leases:
            record = self.store.records.get(lease.name)
            if record is not None:
                record.holder, record.token = lease.holder, lease.token
        return await super().renew(leases)


class CallsLostUnknown(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        return Renewal((await super().renew(leases)).kept)


class BringsBackTheReleased(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        for lease in leases:
            if lease.name not in self.store.records:
                await super().acquire(lease.name)
                self.store.records[lease.name].token = lease.token
        return await super().renew(leases)


class RenewsTheSessionAlone(SessionLeases):
    """A keep-alive does not tell of a single record."""

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        if not self.store.alive(self.session):
            return Renewal(lost=list(leases))
        self.keep_alive()
        return Renewal(kept=list(leases))


class LosesAllForOne(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        renewal = await super().renew(leases)
        return Renewal(lost=list(leases)) if renewal.lost else renewal


class RenewIgnoresTheToken(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        asked = {lease.name: lease for lease in leases}
        records = {name: self.store.records.get(name) for name in asked}
        renewal = await super().renew(
            [replace(asked[name], token=record.token) for name, record in records.items() if record]
        )
        return Renewal([asked[lease.name] for lease in renewal.kept], renewal.lost)


class RenewIgnoresTheHolder(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        kept = []
        for lease in leases:
            record = self.store.live(lease.name)
            if record is not None and record.token == lease.token:
                record.expires_at = self.store.clock.elapsed() + self.me.ttl_seconds
                kept.append(lease)
        return Renewal(kept, [lease for lease in leases if lease not in kept])


class RenewsOnePage(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        return await super().renew(list(leases)[:128])


class ReleaseDoesNothing(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        pass


class ReleaseNeedsAToken(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        if token is not None:
            await super().release(name, token)


class ReleasesAnothers(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        record = self.store.records.get(name)
        if record is not None and token in (None, record.token):
            del self.store.records[name]
            self.store.changed(name)


class ReleasesByTokenAlone(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        record = self.store.records.get(name)
        if record is not None and (
            token == record.token or (record.holder == self.me.holder and token is None)
        ):
            del self.store.records[name]
            self.store.changed(name)


class ReleaseIgnoresTheToken(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        await super().release(name)


class ReleasesOnce(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        if name not in self.store.records:
            raise LookupError("no such lease")
        await super().release(name, token)


class NeverWakes(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        await self.store.clock.sleep(timeout_seconds)
        return frozenset()


class WaitsFromNowOn(Broken):
    """Loses what happened between the refusal and the wait."""

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        for name in names:
            self._seen[name] = self.store.changes.get(name, 0)
        return await super().wait(names, timeout_seconds)


class TellsOnce(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        found = await super().wait(names, timeout_seconds)
        for name in found:
            self._seen[name] = self.store.changes.get(name, 0)
        return found


class WaitsForTheFirst(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        return await super().wait(sorted(names)[:1], timeout_seconds)


class WaitsForEver(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        return await super().wait(names, timeout_seconds + 1000)


class DoesNotWait(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        return await super().wait(names, 0)


class TellsOfOthers(Broken):
    """Of leases that nobody here waits for."""

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        found = await super().wait(names, timeout_seconds)
        return found | {"another-leader"} if found else found


class WakesOne(Broken):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        told: set[tuple[str, int]] = self.shared(set)
        found = await super().wait(names, timeout_seconds)
        new = frozenset(name for name in found if (name, self.store.changes.get(name, 0)) not in told)
        told.update((name, self.store.changes.get(name, 0)) for name in new)
        if found and not new:
            await self.store.clock.sleep(timeout_seconds)
        return new


class ListsItsOwn(Broken):
    async def list(self) -> Sequence[LeaseInfo]:
        return [row for row in await super().list() if row.holder == self.me.holder]


class ListsTheReleased(Broken):
    async def release(self, name: str, token: int | None = None) -> None:
        gone: list[LeaseInfo] = self.shared(list)
        gone += [row for row in await super().list() if row.name == name]
        await super().release(name, token)

    async def list(self) -> Sequence[LeaseInfo]:
        return [*await super().list(), *self.shared(list)]


class ListsTwice(Broken):
    async def list(self) -> Sequence[LeaseInfo]:
        return [*await super().list(), *await super().list()]


class ListsWallTimes(Broken):
    async def list(self) -> Sequence[LeaseInfo]:
        return [replace(row, age_seconds=1.7e9) for row in await super().list()]


class KeepsItsLock(Broken):
    """When a call is cancelled."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.locked = False

    async def turn(self) -> None:
        if self.locked:
            raise RuntimeError("another call is under way")
        self.locked = True
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.locked = False

    async def acquire(self, name: str) -> Lease | Held:
        await self.turn()
        return await super().acquire(name)

    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        await self.turn()
        return await super().renew(leases)

    async def release(self, name: str, token: int | None = None) -> None:
        await self.turn()
        await super().release(name, token)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        await self.turn()
        return await super().wait(names, timeout_seconds)

    async def list(self) -> Sequence[LeaseInfo]:
        await self.turn()
        return await super().list()


class ForgetsWhatItAsked(Broken):
    """And takes the grant of a call that was cancelled for somebody else's."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.known: set[str] = set()

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        if isinstance(answer, Lease) and self.store.records[name].granted_at < 0:
            return Held()
        self.store.records[name].granted_at = -1 if isinstance(answer, Lease) else 0
        await asyncio.sleep(0)
        if name in self.store.records:
            self.store.records[name].granted_at = 0
        return answer


class LosesOnCancel(Broken):
    async def renew(self, leases: Iterable[Lease]) -> Renewal:
        asked = list(leases)
        taken = {lease.name: self.store.records.pop(lease.name, None) for lease in asked}
        await asyncio.sleep(0)
        self.store.records.update({name: record for name, record in taken.items() if record is not None})
        return await super().renew(asked)


class ForgetsTheTokenFirst(Broken):
    """And the server's part after it."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.mine: dict[str, int] = {}

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        if isinstance(answer, Lease):
            self.mine[name] = answer.token
        return answer

    async def release(self, name: str, token: int | None = None) -> None:
        if self.mine.pop(name, None) is not None:
            await asyncio.sleep(0)
            await super().release(name, token)


class LosesTheNewsOnCancel(TellsOnce):
    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        try:
            return await super().wait(names, timeout_seconds)
        except asyncio.CancelledError:
            for name in names:
                self._seen[name] = self.store.changes.get(name, 0) + 1
            raise


class LeavesTheAnswerBehind(Broken):
    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.answers: list[Sequence[LeaseInfo]] = []

    async def list(self) -> Sequence[LeaseInfo]:
        self.answers.append([] if not self.answers else await super().list())
        await asyncio.sleep(0)
        return self.answers.pop(0)


class IgnoresCancelling(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
            return await super().acquire(name)
        await asyncio.sleep(2)
        return await super().acquire(name)


class GivesBackAtStop(Broken):
    async def stop(self) -> None:
        if self.ctx is not None:
            for name in [key for key, row in self.store.records.items() if row.holder == self.me.holder]:
                await self.release(name)


class NeedsAStart(Broken):
    async def stop(self) -> None:
        if self.ctx is None:
            raise RuntimeError("not started")


class StopsOnce(Broken):
    stopped = False

    async def stop(self) -> None:
        if self.stopped:
            raise RuntimeError("stopped twice")
        self.stopped = True


class TellsNoFloor(Broken):
    min_ttl_seconds = float("nan")


class IsMaybeFenced(Broken):
    fenced = None  # type: ignore[assignment]  # what it breaks


class TellsAnother(Broken):
    """In a refusal."""

    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return replace(answer, holder="somebody") if isinstance(answer, Held) else answer


class RefusesForWeeks(Broken):
    async def acquire(self, name: str) -> Lease | Held:
        answer = await super().acquire(name)
        return replace(answer, retry_after_seconds=1e6) if isinstance(answer, Held) else answer


class GrantsToTheOld(SessionLeases):
    """Takes the record of an earlier session of its own for its own."""

    async def acquire(self, name: str) -> Lease | Held:
        record = self.store.records.get(name)
        if record is not None and record.holder.startswith(self.context().worker + "/"):
            self.session = self.session if self.store.alive(self.session) else self.store.number()
            self.store.records[name] = Record(
                self.context().holder, self.session, record.token, record.granted_at
            )
        return await super().acquire(name)

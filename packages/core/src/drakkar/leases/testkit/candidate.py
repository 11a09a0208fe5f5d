"""A process that wants leases, and what is expected of the answers that it gets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from drakkar.leases.backend import Held, Lease, LeaseBackend, LeaseContext, LeaseInfo, Renewal
from drakkar.leases.testkit.basics import expect, failure_of, is_number, keys
from drakkar.leases.testkit.timing import Time


@dataclass(frozen=True)
class Grant:
    """A lease, and the moments between which a holder may count on it."""

    lease: Lease
    sent_at: float

    @property
    def until(self) -> float:
        return self.sent_at + self.lease.ttl_seconds


class Candidate:
    """A started backend and the process it stands for. What its calls raise is a broken promise."""

    def __init__(self, time: Time, backend: LeaseBackend, ctx: LeaseContext) -> None:
        self.backend = backend
        self.worker = ctx.worker
        self.holder = ctx.holder
        self._time = time

    async def ask(self, name: str) -> Grant | Held:
        """Acquire, and look at the form of the answer."""
        sent_at = self._time.elapsed()
        with failure_of("acquire"):
            answer = await self.backend.acquire(name)
        if isinstance(answer, Lease):
            self._look_at_grant(answer, name)
            return Grant(answer, sent_at)
        expect(isinstance(answer, Held), f"expected a Lease or a Held, got {type(answer).__name__}")
        self._look_at_refusal(answer)
        return answer

    async def acquire(self, name: str, when: str) -> Grant:
        """The lease, which must be free or this candidate's own."""
        answer = await self.ask(name)
        if not isinstance(answer, Grant):
            raise AssertionError(f"{when}: expected a grant, got {answer}")
        return answer

    async def expect_refused(self, name: str, until: float, when: str) -> Held:
        """Ask for a lease that somebody else may count on until then."""
        answer = await self.ask(name)
        if isinstance(answer, Held):
            return answer
        self._time.expect_before(until)
        raise AssertionError(f"{when}: expected a refusal, got {answer.lease}")

    async def take_over(self, name: str, until: float, when: str) -> Grant:
        """Ask until the lease is granted: not before `until`, and not much later."""
        time = self._time
        while True:
            answer = await self.ask(name)
            now = time.elapsed()
            if isinstance(answer, Grant):
                expect(now >= until, f"{when}: expected a refusal for {until - now:g} s more, got a grant")
                return answer
            late = now - until
            expect(late < time.late_seconds, f"{when}: expected a grant, still refused {late:g} s late")
            await time.advance(min(0.25 * time.ttl_seconds, max(-late, 0.05)))

    async def renew(self, *leases: Lease) -> Renewal:
        with failure_of("renew"):
            renewal = await self.backend.renew(leases)
        expect(isinstance(renewal, Renewal), f"expected a Renewal, got {type(renewal).__name__}")
        return renewal

    async def expect_kept(self, grants: Iterable[Grant], when: str) -> list[Grant]:
        """Renew `grants`, expect to keep all, and return them as they count from now on."""
        grants = list(grants)
        sent_at = self._time.elapsed()
        renewal = await self.renew(*(grant.lease for grant in grants))
        if keys(renewal.kept) == keys(grant.lease for grant in grants) and not renewal.lost:
            return [replace(grant, sent_at=sent_at) for grant in grants]
        self._time.expect_before(min(grant.until for grant in grants))
        raise AssertionError(
            f"{when}: expected to keep {len(grants)} of {len(grants)} leases, kept {len(renewal.kept)},"
            f" lost {len(renewal.lost)}"
        )

    async def expect_lost(self, lease: Lease, when: str) -> None:
        """Renew `lease`, and expect to be told of its loss."""
        renewal = await self.renew(lease)
        told = (lease.name, lease.token) in keys(renewal.lost)
        expect(
            told and not renewal.kept,
            f"{when}: expected to be told that {lease} is lost, kept {list(renewal.kept)},"
            f" lost {list(renewal.lost)}",
        )

    async def release(self, name: str, token: int | None = None) -> None:
        with failure_of("release"):
            await self.backend.release(name, token)

    async def wait(self, names: Iterable[str], timeout_seconds: float) -> frozenset[str]:
        names = frozenset(names)
        with failure_of("wait"):
            found = await self.backend.wait(names, timeout_seconds)
        expect(frozenset(found) <= names, f"expected names that were waited for, got {sorted(found)}")
        return frozenset(found)

    async def list(self) -> Sequence[LeaseInfo]:
        with failure_of("list"):
            return await self.backend.list()

    def _look_at_grant(self, lease: Lease, name: str) -> None:
        expect(lease.name == name, f"expected a grant of {name!r}, got one of {lease.name!r}")
        expect(lease.holder == self.holder, f"expected {self.holder} as the holder, got {lease.holder!r}")
        expect(type(lease.token) is int, f"expected a token that is an int, got {lease.token!r}")
        sound = is_number(lease.ttl_seconds) and lease.ttl_seconds > 0
        expect(sound, f"expected a ttl above 0, got {lease.ttl_seconds!r}")

    def _look_at_refusal(self, refusal: Held) -> None:
        holder, seconds = refusal.holder, refusal.retry_after_seconds
        expect(holder is None or isinstance(holder, str), f"expected a holder or None, got {holder!r}")
        expect(holder != self.holder, "expected no refusal that shows the very holder who asks")
        longest = 2 * self._time.ttl_seconds + self._time.late_seconds
        sound = seconds is None or (is_number(seconds) and 0 <= seconds <= longest)
        expect(sound, f"expected retry_after_seconds to be None or within {longest:g}, got {seconds!r}")

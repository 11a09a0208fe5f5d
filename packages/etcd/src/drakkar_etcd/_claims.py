"""Taking leases and giving them back: transactions on one key per name.

A name is free when it has no key. A grant is one transaction that makes the key, on the etcd lease of this
process, if there is none, if the number that tokens begin with is the one that we know, and if no later call
has made it void (see `_session`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from drakkar.leases.backend import Held, Lease, LeaseInfo

from drakkar_etcd._answers import EtcdError, UnansweredError
from drakkar_etcd._client import EtcdClient
from drakkar_etcd._records import Claim, Record, read_record, token_of
from drakkar_etcd._session import Session
from drakkar_etcd._tokens import Tokens
from drakkar_etcd._wakeups import WakeUps
from drakkar_etcd._wire import (
    Folder,
    Json,
    compare,
    encoded,
    got,
    number,
    revision_of,
    then_delete,
    then_get,
    then_put,
    transaction,
)

_TRIES: Final = 6


class Claims:
    """The leases of one process. Every method raises as `EtcdClient.call` does."""

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        holder: str,
        session: Session,
        wakeups: WakeUps,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._folder = Folder(f"{prefix}/leases/")
        self.tokens = Tokens(client, f"{prefix}/lease-base")
        self._holder = holder
        self._session = session
        self._wakeups = wakeups
        self._clock = clock
        self._claims: dict[str, Claim] = {}
        self._suspects: dict[str, tuple[int, float]] = {}

    async def acquire(self, name: str) -> Lease | Held:
        asked_at = self._clock()
        self._wakeups.asking(name)
        for _ in range(_TRIES):
            await self._session.settle(name)
            await self._session.make(asked_at)
            await self.tokens.prepare()
            try:
                answer = await self._try(name)
            except BaseException:
                # It may still arrive: it was cut short, or a proxy refused it or gave another answer.
                self._session.doubt(name)
                raise
            if answer is not None:
                return answer
        raise RuntimeError(f"the lease {name!r} could not be asked for: the store changed under every try")

    async def _try(self, name: str) -> Lease | Held | None:
        """One transaction; None when it has to be tried again."""
        key, lease, guard = self._folder.key(name), self._session.id, self._session.guard_revision
        if not lease:  # forgotten since it was made
            return None
        record = Record(self._holder, self.tokens.base, self._session.ttl_seconds)
        request = transaction(
            [
                compare(key, "create", 0),
                self.tokens.unchanged(),
                self._session.unchanged(),
            ],
            [then_put(key, record.encode(), lease), then_get(key)],
            [then_get(key), self.tokens.look(), self._session.look()],
        )
        highest = self.tokens.highest  # before it is sent: answers may come out of order
        try:
            answer = await self._client.call("/kv/txn", request, repeat=False)
        except EtcdError as error:
            if not error.lease_is_gone:
                raise
            self._session.forget(lease)
            return None
        except UnansweredError:
            self._session.doubt(name)
            return None
        if answer.get("succeeded") is not True:
            return await self._refused(name, answer, lease, guard)
        token = record.token(revision_of(answer))
        claim = Claim(token, revision_of(answer), encoded(record.encode()), lease, self._clock())
        made = got(answer, 1)
        if made is None or made.get("key") != key or not claim.is_in(made, lease):
            raise UnansweredError("etcd answered for another grant than was asked for")
        if token <= highest:
            # The store was set back to an earlier state of its own, and this token comes a second time.
            await self._delete(name, claim)
            await self.tokens.begin_anew()
            return None
        return self._grant(name, claim)

    def _grant(self, name: str, claim: Claim) -> Lease:
        self.tokens.saw(claim.token)
        self._claims[name] = claim
        self._suspects.pop(name, None)
        self._wakeups.granted(name)
        return Lease(name, self._holder, claim.token, self._session.ttl_seconds)

    async def _refused(self, name: str, answer: Json, lease: int, guard: int) -> Lease | Held | None:
        kv, base = self._of(name, got(answer, 0)), got(answer, 1)
        if kv is None:  # so it was one of the other conditions
            self.tokens.adopt(base)
            await self._session.adopt(got(answer, 2), guard)
            return None
        record = read_record(kv)
        if record is not None and number(kv.get("lease")):
            if record.holder != self._holder:
                self.tokens.saw(token_of(kv, record))
                self._suspects.pop(name, None)
                self._wakeups.refused(name, revision_of(answer))
                return Held(record.holder, record.ttl_seconds)
            if number(kv.get("lease")) == lease:  # the answer to an earlier try was lost
                claim = self._claim_of(name, kv, record)
                if claim is self._claims.get(name) or claim.token > self.tokens.highest:
                    return self._grant(name, claim)
                # It may be one that `_try` would not have, and whose deletion is still on its way.
                await self._delete(name, claim)
                return None
        return await self._suspect(name, kv, answer)

    async def _suspect(self, name: str, kv: Json, answer: Json) -> Held | None:
        """A record that nobody can read, that will never run out, or that hangs on a former lease of ours."""
        mod, now = number(kv["mod_revision"]), self._clock()
        seen_mod, seen_at = self._suspects.get(name, (0, 0.0))
        if seen_mod != mod:
            seen_at = now
            self._suspects[name] = mod, now
        if (left := seen_at + self._session.ttl_seconds - now) <= 0:
            key = self._folder.key(name)
            await self._client.call("/kv/txn", transaction([compare(key, "mod", mod)], [then_delete(key)]))
            return None
        self._wakeups.refused(name, revision_of(answer))
        record = read_record(kv)
        if record is None or record.holder == self._holder:
            return Held(None, left)
        return Held(record.holder, left)

    def compared(self, leases: Iterable[Lease], kvs: Iterable[Json]) -> tuple[list[Lease], list[Lease]]:
        """Which of `leases` are still ours, by a reading of all names, and which are not."""
        found = {kv["key"]: kv for kv in kvs}
        kept: list[Lease] = []
        lost: list[Lease] = []
        for lease in leases:
            kv = found.get(self._folder.key(lease.name))
            claim = self._claims.get(lease.name)
            if claim is None or claim.token != lease.token:
                claim = None if kv is None else self._found(lease.name, kv)
            ours = claim is not None and claim.token == lease.token
            is_there = kv is not None and claim is not None and claim.is_in(kv, self._session.id)
            (kept if ours and is_there else lost).append(lease)
        return kept, lost

    async def release(self, name: str, token: int | None) -> None:
        """Delete the key of our grant `token`, or of whatever grant we have."""
        await self._session.settle(name)
        claim = self._claims.get(name)
        if claim is None or claim.token != token:
            answer = await self._client.call("/kv/range", {"key": self._folder.key(name)})
            kv = self._of(name, next(iter(answer.get("kvs", ())), None))
            claim = None if kv is None else self._found(name, kv)
            if claim is None or token not in (None, claim.token):
                return
        await self._delete(name, claim)
        if self._claims.get(name) is claim:
            del self._claims[name]

    async def _delete(self, name: str, claim: Claim) -> None:
        # The etcd lease as well: in a store that lost its data, another's grant may have the same revision.
        key = self._folder.key(name)
        same = [
            compare(key, "create", claim.create_revision),
            {"key": key, "target": "LEASE", "result": "EQUAL", "lease": str(claim.lease)},
        ]
        await self._client.call("/kv/txn", transaction(same, [then_delete(key)]))

    async def rows(self) -> list[LeaseInfo]:
        """Every name. Times are known for our own."""
        now = self._clock()
        left = max(0.0, self._session.renewed_at + self._session.ttl_seconds - now)
        rows = []
        for kv in await self.read():
            name, record = self._folder.name(kv["key"]), read_record(kv)
            if name is None:
                continue
            if record is None:
                rows.append(LeaseInfo(name, None, None, None, None))
                continue
            token, claim = token_of(kv, record), self._claims.get(name)
            ours = claim is not None and claim.token == token and record.holder == self._holder
            age = max(0.0, now - claim.granted_at) if ours and claim is not None else None
            rows.append(LeaseInfo(name, record.holder, token, age, left if ours else None))
        return rows

    async def read(self) -> list[Json]:
        """Every name, as it stands in the store."""
        kvs: list[Json] = (await self._client.call("/kv/range", self._folder.range)).get("kvs", [])
        return kvs

    def _of(self, name: str, kv: Json | None) -> Json | None:
        """`kv`, which should be what the key of `name` holds."""
        if kv is not None and kv.get("key") != self._folder.key(name):
            raise UnansweredError("etcd answered for another key than was asked for")
        return kv

    def _found(self, name: str, kv: Json) -> Claim | None:
        """Our grant in a key; None when it is not ours."""
        record = read_record(kv)
        return None if record is None or record.holder != self._holder else self._claim_of(name, kv, record)

    def _claim_of(self, name: str, kv: Json, record: Record) -> Claim:
        token = token_of(kv, record)
        known = self._claims.get(name)
        if known is not None and known.token == token:
            return known
        created, lease = number(kv["create_revision"]), number(kv.get("lease"))
        return Claim(token, created, kv["value"], lease, self._clock())

"""Acquire, renew and release on files, for one process. Every method here blocks.

They run on one thread, one at a time, so a job that was abandoned has ended before the next begins.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex

from drakkar.leases.backend import Held, Lease
from drakkar.leases.deadline import deadline

from drakkar_filesystem._claims import claim, next_number, settle, show_usable
from drakkar_filesystem._client import Abandoned, Proceed
from drakkar_filesystem._folder import Folder, naming
from drakkar_filesystem._generations import Sight, look, looked_at, make_place
from drakkar_filesystem._grants import Grant
from drakkar_filesystem._holders import Holders
from drakkar_filesystem._lease_record import MAX_RECORD_BYTES, Record, encode, place_of
from drakkar_filesystem._watches import Watches


@dataclass(slots=True)
class Outcome:
    """What became of leases; those that `failed`, or are in no group, are neither kept nor lost."""

    kept: list[Lease] = field(default_factory=list)
    lost: list[Lease] = field(default_factory=list)
    failed: list[tuple[Lease, OSError]] = field(default_factory=list)


class Candidate:
    """One process that wants leases, as `holder`, each for `ttl_seconds`."""

    def __init__(
        self,
        folder: Folder,
        holders: Holders,
        watches: Watches,
        *,
        holder: str,
        instance: str,
        ttl_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._holders = holders
        self._watches = watches
        self._holder = holder
        self._instance = instance
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self.refused: dict[str, int] = {}
        """The newest generation that the last refused acquire of a name saw."""

    def prepare(self, proceed: Proceed) -> None:
        """Make the folder, show that it can do what leases need, and lock the file of this process.

        To be called before anything else; again after a failure.
        """
        with self._folder.opened(proceed, make=True) as leases:
            show_usable(leases, token_hex(16))
            proceed()
            self._holders.take(leases)
            self._holders.prune(leases)

    def acquire(self, name: str, asked_at: float, proceed: Proceed) -> Lease | Held:
        """Take the lease, which was asked for at `asked_at`, if it is free or ours.

        What is abandoned after it was granted is given back, or known to be ours the next time.
        """
        place = place_of(name)
        with self._folder.opened(proceed, make=True) as leases:
            make_place(leases, place)
            began = self._clock()
            with looked_at(leases, place) as (folder, sight):
                remaining = self._remaining(leases, name, sight, began)
                grant = self._grants.get(name)
                if grant is not None and grant.is_in(sight):
                    if self._touch(leases, grant, asked_at) and self._settled(leases, grant):
                        return self._lease(name, grant)
                    # Ours, and over. Nobody else can have it, so the next one may be made at once.
                elif remaining > 0:
                    return self._refusal(name, sight, remaining)
                proceed()
                new = self._claim(leases, place, folder, name, sight, asked_at, proceed)
            if new is not None:
                return self._lease(name, new)
            began = self._clock()
            sight = look(leases, place)
            return self._refusal(name, sight, self._remaining(leases, name, sight, began))

    def renew(self, leases: Iterable[Lease], asked_at: float, give_up_at: float, proceed: Proceed) -> Outcome:
        """Bring leases to their full ttl, those first that have waited longest.

        Those not reached by `give_up_at` are in no group, so that what was done counts. Raises `OSError` when
        the folder cannot be used.
        """
        outcome = Outcome()
        ours: list[tuple[Lease, Grant]] = []
        for lease in leases:
            grant = self.grant_of(lease.name, lease.token)
            if grant is None or grant.lost or lease.holder != self._holder:
                outcome.lost.append(lease)
            else:
                ours.append((lease, grant))
        if not ours:
            return outcome
        ours.sort(key=lambda pair: pair[1].asked_at)
        try:
            with self._folder.opened(proceed) as folder:
                safe = self._holders.holds(folder)
                for lease, grant in ours:
                    proceed()
                    if self._clock() >= give_up_at:
                        break
                    try:
                        grant.lost = not (safe and self._touch(folder, grant, asked_at))
                    except OSError as error:
                        outcome.failed.append((lease, error))
                        continue
                    (outcome.lost if grant.lost else outcome.kept).append(lease)
        except FileNotFoundError as error:
            if error.filename != str(self._folder.path):  # what is around it is missing, perhaps a mount
                raise
            for lease, grant in ours:
                grant.lost = True
                outcome.lost.append(lease)
        return outcome

    def release(self, name: str, token: int | None, proceed: Proceed) -> None:
        """Give back the grant `token`, or any; does nothing when there is no such grant of ours."""
        grant = self._grants.get(name)
        if grant is None or token not in (None, grant.number):
            return
        try:
            with self._folder.opened(proceed) as leases:
                grant.give_back(leases, proceed)
        except FileNotFoundError as error:
            if str(error.filename) == str(self._folder.path.parent):  # perhaps a mount that comes back
                raise
        del self._grants[name]

    def leave(self, proceed: Proceed) -> None:
        """Delete the file of this process, unless it holds something: then its end has to show by it."""
        if not self._grants:
            with suppress(FileNotFoundError), self._folder.opened(proceed) as leases:
                self._holders.leave(leases)

    def grant_of(self, name: str, number: int) -> Grant | None:
        """Our grant of the lease, if that generation is one. May be asked by any thread."""
        grant = self._grants.get(name)
        return grant if grant is not None and grant.number == number else None

    def _remaining(self, leases: int, name: str, sight: Sight, began: float) -> float:
        """For how long what a look found that began at `began` still counts as another's; 0: it does not."""
        if sight.content is None:
            return 0.0
        remaining = self._watches.saw(name, sight, began, self._clock())
        record = sight.content.record
        if record is not None and (record.released or self._holders.is_dead(leases, record)):
            return 0.0
        return max(0.0, remaining)

    def _settled(self, leases: int, grant: Grant) -> bool:
        """Whether all of the claim was done; an error may have kept us from the rest."""
        grant.on_disk = grant.on_disk or settle(leases, grant.place, grant.number)
        return grant.on_disk

    def _touch(self, leases: int, grant: Grant, asked_at: float) -> bool:
        if not grant.touch(leases, self._clock, deadline(grant.asked_at, self._ttl_seconds)):
            return False
        grant.asked_at = max(grant.asked_at, asked_at)
        return True

    def _claim(
        self,
        leases: int,
        place: str,
        folder: int,
        name: str,
        sight: Sight,
        asked_at: float,
        proceed: Proceed,
    ) -> Grant | None:
        """Try to make the generation after the one that was judged."""
        self._holders.take(leases)
        record = Record(
            name=name,
            holder=self._holder,
            claim=token_hex(16),
            ttl_seconds=self._ttl_seconds,
            instance=self._instance,
            boot_id=self._holders.boot_id,
            device=self._holders.device,
            inode=self._holders.inode,
        )
        data = encode(record, 0)
        if len(data) > MAX_RECORD_BYTES:
            raise ValueError(f"a lease of {len(data)} bytes is too large: this worker's name is too long")
        with naming(self._folder.path / place):
            number = next_number(folder, sight, record.claim)
        grant = Grant(place, number, data, asked_at, asked_at)

        def linking() -> None:
            proceed()
            self._grants[name] = grant  # whatever comes now, we shall know it when we see it

        if not claim(leases, place, folder, sight, number, record.claim, data, linking):
            self._grants.pop(name, None)
            return None
        grant.on_disk = True
        try:
            proceed()
        except Abandoned:  # nobody will hear of it
            grant.give_back(leases, lambda: None)
            del self._grants[name]
            raise
        return grant

    def _refusal(self, name: str, sight: Sight, remaining: float) -> Held:
        self.refused[name] = sight.number
        record = None if sight.content is None else sight.content.record
        if record is None or record.holder == self._holder:  # a twin of ours is another one all the same
            return Held(None, remaining)
        return Held(record.holder, remaining)

    def _lease(self, name: str, grant: Grant) -> Lease:
        self._watches.forget(name)
        self.refused.pop(name, None)
        return Lease(name, self._holder, grant.number, self._ttl_seconds)

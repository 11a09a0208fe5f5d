"""Acquire, renew and release on files, for one process. Every method here blocks.

They run on one thread, one at a time, so a job that was abandoned has ended before the next begins. What
makes a second holder impossible, beside the claims of `_generations`:

- a holder renews by changing its record, which every contender compares, and looks only *then* whether its
  generation is still the newest: a contender either sees the change, or has been overtaken, or is seen;
- and only what was done within a ttl of the last time counts, which is checked *after* it was done. So no
  contender can have seen the record stand still for a ttl before the change.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from drakkar.leases.backend import Held, Lease
from drakkar.leases.deadline import deadline

from drakkar_filesystem._client import Abandoned, Proceed
from drakkar_filesystem._folder import Folder
from drakkar_filesystem._generations import (
    NO_FILE,
    READ_WRITE,
    Sight,
    claim,
    is_newest,
    look,
    make_place,
    next_number,
    place_opened,
    settle,
)
from drakkar_filesystem._holders import Holders
from drakkar_filesystem._lease_record import (
    COUNTER_AT,
    MAX_RECORD_BYTES,
    RELEASED,
    RELEASED_AT,
    Record,
    counter_field,
    encode,
    is_unchanged,
    place_of,
)
from drakkar_filesystem._watches import Watches


@dataclass(slots=True)
class Grant:
    """A generation that is, or may be, ours."""

    number: int
    data: bytes
    """Its record as it was written first."""

    granted_at: float
    asked_at: float
    """When that was asked for which was last done in time."""

    counter: int = 0
    """The highest that we have tried to write."""

    lost: bool = False
    on_disk: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of leases; those that `failed` are neither kept nor lost."""

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
            self._holders.take(leases)
            proceed()
            self._holders.prune(leases)

    def acquire(self, name: str, asked_at: float, proceed: Proceed) -> Lease | Held:
        """Take the lease, which was asked for at `asked_at`, if it is free or ours.

        What is abandoned after it was granted is given back.
        """
        place = place_of(name)
        with self._folder.opened(proceed, make=True) as leases:
            make_place(leases, place)
            sight, remaining = self._look(leases, place, name)
            grant = self._grants.get(name)
            if grant is not None and self._shows(sight, grant):
                if self._touch(leases, place, grant, asked_at):
                    if not grant.on_disk:  # an error had kept us from the rest of the claim
                        settle(leases, place, grant.number)
                        grant.on_disk = True
                    return self._lease(name, grant)
                # Ours, and over: nobody else can have it, so the next generation may be made at once.
            elif remaining > 0:
                return self._refuse(name, sight, remaining)
            proceed()
            if (grant := self._claim(leases, place, name, sight, asked_at, proceed)) is not None:
                return self._lease(name, grant)
            sight, remaining = self._look(leases, place, name)
            return self._refuse(name, sight, remaining)

    def renew(
        self, leases: Iterable[Lease], asked_at: float, give_up_at: float, proceed: Proceed
    ) -> Outcome:
        """Bring leases to their full ttl, those first that have waited longest.

        Those not reached by `give_up_at` are in no group, so that what was done counts. Raises `OSError` when
        the folder cannot be used.
        """
        outcome = Outcome()
        ours = []
        for lease in leases:
            grant = self._grants.get(lease.name)
            if grant is None or (lease.holder, lease.token) != (self._holder, grant.number) or grant.lost:
                outcome.lost.append(lease)
            else:
                ours.append((grant.asked_at, lease, grant))
        if not ours:
            return outcome
        try:
            with self._folder.opened(proceed) as folder:
                safe = self._holders.holds(folder)
                for _, lease, grant in sorted(ours, key=lambda each: each[0]):
                    proceed()
                    if self._clock() >= give_up_at:
                        break
                    try:
                        kept = safe and self._touch(folder, place_of(lease.name), grant, asked_at)
                    except OSError as error:
                        outcome.failed.append((lease, error))
                        continue
                    if kept:
                        outcome.kept.append(self._lease(lease.name, grant))
                    else:
                        grant.lost = True
                        outcome.lost.append(lease)
        except FileNotFoundError as error:
            if error.filename != str(self._folder.path):  # what is around it is missing, perhaps a mount
                raise
            for _, lease, grant in ours:
                grant.lost = True
                outcome.lost.append(lease)
        return outcome

    def release(self, name: str, token: int | None, proceed: Proceed) -> None:
        """Give back the grant `token`, or any; does nothing when there is no such grant of ours."""
        grant = self._grants.get(name)
        if grant is None or token not in (None, grant.number):
            return
        with suppress(FileNotFoundError), self._folder.opened(proceed) as leases:
            self._mark_released(leases, place_of(name), grant, proceed)
        del self._grants[name]

    def grant_of(self, name: str, number: int) -> Grant | None:
        """Our grant of the lease, if that generation is one. May be asked by any thread."""
        grant = self._grants.get(name)
        return grant if grant is not None and grant.number == number else None

    def leave(self, proceed: Proceed) -> None:
        """Delete the file of this process when it holds nothing; else the end of the process will show."""
        if not self._grants:
            with suppress(FileNotFoundError), self._folder.opened(proceed) as leases:
                self._holders.leave(leases)
                self._holders.close(held=False)

    def close(self) -> None:
        """Let the file of this process go without a look at the folder."""
        self._holders.close(held=True)

    def _look(self, leases: int, place: str, name: str) -> tuple[Sight, float]:
        """The newest generation, and for how long it still counts as held by another; 0: it does not."""
        began = self._clock()
        sight = look(leases, place)
        if sight.content is None:
            return sight, 0.0
        remaining = self._watches.saw(name, sight, began, self._clock())
        record = sight.content.record
        if record is not None and (record.released or self._holders.is_dead(leases, record)):
            return sight, 0.0
        return sight, max(0.0, remaining)

    def _shows(self, sight: Sight, grant: Grant) -> bool:
        """Whether it is our grant that was seen, not released."""
        return (
            sight.number == grant.number
            and sight.content is not None
            and is_unchanged(sight.content.stamp[2], grant.data, grant.counter)
        )

    def _touch(self, leases: int, place: str, grant: Grant, asked_at: float) -> bool:
        """Change our record, then see whether it was in time and is still the newest.

        False is certain. Raises `OSError` when nothing is.
        """
        limit = deadline(grant.asked_at, self._ttl_seconds)
        if grant.lost or self._clock() >= limit:
            return False
        try:
            with self._our_record(leases, place, grant) as file:
                if file is None:
                    return False
                grant.counter += 1
                _write(file, counter_field(grant.counter), COUNTER_AT)
            # Closed by now: that is when a network file system tells its server.
            newest = is_newest(leases, place, grant.number)
        except FileNotFoundError:
            return False
        if not newest or self._clock() >= limit:
            return False
        grant.asked_at = max(grant.asked_at, asked_at)
        return True

    def _claim(
        self, leases: int, place: str, name: str, sight: Sight, asked_at: float, proceed: Proceed
    ) -> Grant | None:
        """Try to make the generation after the one that was judged."""
        self._holders.take(leases)
        holders = self._holders
        record = Record(
            name=name,
            holder=self._holder,
            claim=token_hex(16),
            ttl_seconds=self._ttl_seconds,
            instance=self._instance,
            boot_id=holders.boot_id,
            device=holders.device,
            inode=holders.inode,
        )
        data = encode(record, 0)
        if len(data) > MAX_RECORD_BYTES:
            raise ValueError(f"{len(data)} bytes are too many for a lease: the name of this worker is too long")
        number = next_number(leases, place, sight, record.claim)
        grant = Grant(number, data, asked_at, asked_at)

        def linking() -> None:
            proceed()
            self._grants[name] = grant  # whatever comes, we shall know it when we see it

        if not claim(leases, place, sight, number, record.claim, data, linking=linking):
            self._grants.pop(name, None)
            return None
        grant.on_disk = True
        try:
            proceed()
        except Abandoned:  # nobody will hear of it
            self._mark_released(leases, place, grant, lambda: None)
            del self._grants[name]
            raise
        return grant

    def _mark_released(self, leases: int, place: str, grant: Grant, proceed: Proceed) -> None:
        with self._our_record(leases, place, grant) as file:
            if file is not None:
                proceed()
                _write(file, RELEASED, RELEASED_AT)
                os.utime(file)  # a change of its attributes is what waiters are told of

    @contextmanager
    def _our_record(self, leases: int, place: str, grant: Grant) -> Iterator[int | None]:
        """The opened file of our grant; None when there is something else in its place.

        Raises `FileNotFoundError` when there is nothing.
        """
        with place_opened(leases, place) as folder:
            try:
                file = os.open(str(grant.number), READ_WRITE, dir_fd=folder)
            except OSError as error:
                if error.errno not in NO_FILE:
                    raise
                file = -1
        if file < 0:
            yield None
            return
        try:
            data = os.pread(file, MAX_RECORD_BYTES + 1, 0)
            yield file if is_unchanged(data, grant.data, grant.counter) else None
        finally:
            os.close(file)

    def _refuse(self, name: str, sight: Sight, remaining: float) -> Held:
        self.refused[name] = sight.number
        record = None if sight.content is None else sight.content.record
        holder = None if record is None or record.holder == self._holder else record.holder
        return Held(holder, remaining)

    def _lease(self, name: str, grant: Grant) -> Lease:
        self._watches.forget(name)
        self.refused.pop(name, None)
        return Lease(name, self._holder, grant.number, self._ttl_seconds)


def _write(file: int, data: bytes, offset: int) -> None:
    if os.pwrite(file, data, offset) != len(data):
        raise OSError(errno.EIO, "a record was written in part only")

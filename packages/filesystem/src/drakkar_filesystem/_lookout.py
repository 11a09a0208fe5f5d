"""Looking at the leases of others: which may be free by now, and which there are. Every method here blocks.

It runs on a thread of its own, so that neither a folder full of leases nor one that hangs delays a renewal.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final

from drakkar.leases.backend import LeaseInfo

from drakkar_filesystem._candidate import Candidate
from drakkar_filesystem._client import Proceed
from drakkar_filesystem._folder import Folder
from drakkar_filesystem._generations import look, names_in
from drakkar_filesystem._holders import Holders
from drakkar_filesystem._lease_record import Record, name_of, place_of
from drakkar_filesystem._notices import Notices
from drakkar_filesystem._watches import Watches

LOOK_ANYHOW_SECONDS: Final = 10.0
"""How long the kernel's silence is trusted about a lease whose holder is on this host."""


class Lookout:
    """`folder` is its own, everything else is the candidate's."""

    def __init__(
        self,
        folder: Folder,
        candidate: Candidate,
        holders: Holders,
        watches: Watches,
        notices: Notices,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._candidate = candidate
        self._holders = holders
        self._watches = watches
        self._notices = notices
        self._clock = clock
        self.blind = True
        """Whether the last look was at leases of which the kernel may not tell everything."""

    def prepare(self, proceed: Proceed) -> None:
        """See the folder once, so that its mount is known, and get the kernel to tell of changes.

        Raises what keeps it from that; all the rest works without.
        """
        with self._folder.opened(proceed):
            self._notices.open()

    def free_among(self, names: Iterable[str], proceed: Proceed) -> frozenset[str]:
        """Those that were given back, have run out, or are not what they were when they were refused.

        One that cannot be looked at is left out. Raises `OSError` when the folder cannot be used.
        """
        free = set()
        self.blind = False
        dead: dict[tuple[str, int | None], bool] = {}
        try:
            with self._folder.opened(proceed) as leases:
                device = os.fstat(leases).st_dev

                def is_dead(record: Record) -> bool:
                    key = record.instance, record.inode
                    if key not in dead:
                        dead[key] = self._holders.is_dead(leases, record)
                    return dead[key]

                for name in names:
                    proceed()
                    try:
                        if self._may_be_free(leases, name, device, is_dead):
                            free.add(name)
                    except OSError:
                        continue
        except FileNotFoundError:
            return frozenset(names)  # `acquire` will tell what is the matter
        return frozenset(free)

    def _may_be_free(self, leases: int, name: str, device: int, is_dead: Callable[[Record], bool]) -> bool:
        now = self._clock()
        watch = self._watches.get(name)
        if (
            watch is not None
            and watch.record is not None
            and now - watch.looked_at < LOOK_ANYHOW_SECONDS
            and self._notices.would_tell(name)
            and self._is_here(watch.record, device)
        ):
            return watch.remaining(now) <= 0 or is_dead(watch.record)
        place = place_of(name)
        self.blind = not self._notices.watch(name, self._folder.path / place) or self.blind
        self._notices.dirty.discard(name)  # before the look: what comes after it is for the next one
        try:
            sight = look(leases, place)
        except FileNotFoundError:
            return True
        if sight.content is None or sight.number != self._candidate.refused.get(name, sight.number):
            return True
        record = sight.content.record
        remaining = self._watches.saw(name, sight, now, self._clock())
        self.blind = self.blind or record is None or not self._is_here(record, device)
        return remaining <= 0 or (record is not None and (record.released or is_dead(record)))

    def _is_here(self, record: Record, device: int) -> bool:
        """Whether the kernel tells us what the holder does."""
        here = self._holders.boot_id
        return here is not None and (record.boot_id, record.device) == (here, device)

    def rows(self, proceed: Proceed) -> list[LeaseInfo]:
        """Every lease that somebody has. Raises `OSError` when none could be looked at."""
        rows = []
        failed: OSError | None = None
        with self._folder.opened(proceed) as leases:
            for place in names_in(leases):
                proceed()
                if place.startswith("."):
                    continue
                try:
                    row = self._row(leases, place)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    failed = error
                    continue
                if row is not None:
                    rows.append(row)
        if failed is not None and not rows:
            raise failed
        return rows

    def _row(self, leases: int, place: str) -> LeaseInfo | None:
        now = self._clock()
        sight = look(leases, place)
        if sight.content is None:
            return None
        record = sight.content.record
        if record is None or place_of(record.name) != place:
            return LeaseInfo(name_of(place) or place, None, sight.number, None, None)
        if record.released:
            return None
        age = None
        grant = self._candidate.grant_of(record.name, sight.number)
        if grant is not None:
            age, remaining = now - grant.granted_at, grant.asked_at + record.ttl_seconds - now
        else:
            remaining = self._watches.saw(record.name, sight, now, self._clock())
        return LeaseInfo(record.name, record.holder, sight.number, age, max(0.0, remaining))

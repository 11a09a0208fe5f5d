"""What a listing must pass before it becomes the snapshot.

Cards are untrusted, and so is the provider that hands them over. A bad card costs its own row and one log
line; it never costs its neighbours theirs.
"""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from drakkar.fleet.card import Card, CardError, CardSchemaError, check_card, encode_card
from drakkar.fleet.identity import WorkerIdentity
from drakkar.fleet.provider import EventLogger, PeerCard
from drakkar.telemetry.metrics import RegistryMetrics

_T = TypeVar("_T")

_REMEMBERED: Final = 1024
_BATCH: Final = 50
"""Cards checked in one step of the event loop: well under a millisecond of work."""


@dataclass(frozen=True, slots=True)
class ListedCard:
    """A card with all its fields checked, and its age when it was listed."""

    card: Card
    age_seconds: float | None


class Intake:
    """Turns listings into peers; remembers what it has already checked and already told."""

    def __init__(
        self,
        identity: WorkerIdentity,
        offline_after_seconds: float,
        logger: EventLogger,
        metrics: RegistryMetrics,
    ) -> None:
        self._identity = identity
        self._offline_after = offline_after_seconds
        self._logger = logger
        self._metrics = metrics
        self._accepted: dict[str, Card] = {}
        self._told: set[tuple[str, str]] = set()
        self._other_instances: set[str] = set()

    async def accept(self, listing: Iterable[PeerCard]) -> tuple[ListedCard, ...]:
        """The peers of `listing` by name, this worker left out.

        Of two cards of one worker the younger stays. Yields to the event loop between batches.
        """
        peers: dict[str, ListedCard] = {}
        checked = refused = 0
        for listed in listing:
            card, age = listed.card, _age(listed.age_seconds)
            worker = _name(card)
            if not self._is_known(worker, card):
                checked += 1
                if checked % _BATCH == 0:
                    await asyncio.sleep(0)
                if not self._check(worker, card):
                    refused += 1
                    continue
            if worker == self._identity.worker:
                self._look_for_duplicate(card, age)
                continue
            known = peers.get(worker)
            if known is None or _younger(age, known.age_seconds):
                peers[worker] = ListedCard(card, age)
        self._accepted = {worker: peer.card for worker, peer in peers.items()}
        self._metrics.invalid_cards.set(refused)
        return tuple(peers[worker] for worker in sorted(peers))

    def _is_known(self, worker: str, card: Card) -> bool:
        known = self._accepted.get(worker)
        try:
            # Its type, since True and 1.0 are equal to 1.
            return known is not None and known == card and type(card["schema"]) is int
        except Exception:  # noqa: BLE001  as in `_check`, which then has to decide
            return False

    def _check(self, worker: str, card: Card) -> bool:
        try:
            encode_card(card)  # the provider need not have parsed it from JSON
            check_card(card)
        except CardSchemaError as error:
            self._tell("fleet_card_schema_unsupported", worker, error)
        except CardError as error:
            self._tell("fleet_card_invalid", worker, error)
        except Exception as error:  # noqa: BLE001  a value with methods of its own may raise anything
            self._tell("fleet_card_invalid", worker, CardError("not_json", type(error).__name__))
        else:
            return True
        return False

    def _tell(self, event: str, worker: str, error: CardError) -> None:
        if _first((event, worker), self._told):
            self._logger.warning(event, worker=worker[:200], reason=error.reason, error=str(error)[:200])

    def _look_for_duplicate(self, card: Card, age_seconds: float | None) -> None:
        instance = card.get("instance", "")
        if instance == self._identity.instance or age_seconds is None or age_seconds > self._offline_after:
            return
        if _first(instance, self._other_instances):
            self._metrics.duplicate_names.inc()
            self._logger.warning(
                "fleet_duplicate_worker_name",
                worker=self._identity.worker,
                other_instance=instance,
                other_url=card["url"],
                hint="give one of the two another worker_name, or stop it",
            )


def _first(item: _T, seen: set[_T]) -> bool:
    """Whether `item` is new. A full set stays silent rather than grow with whatever strangers write."""
    if item in seen or len(seen) >= _REMEMBERED:
        return False
    seen.add(item)
    return True


def _name(card: object) -> str:
    worker = card.get("worker") if isinstance(card, dict) else None
    return worker if isinstance(worker, str) else ""


def _age(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        age = float(value)
    except OverflowError:
        return None
    return age if math.isfinite(age) else None


def _younger(age_seconds: float | None, than: float | None) -> bool:
    return age_seconds is not None and (than is None or age_seconds < than)

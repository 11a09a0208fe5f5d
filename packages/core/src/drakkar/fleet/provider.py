"""The contract between a worker and the store that keeps the cards of its fleet.

Not guaranteed by any provider: that a listing is complete or fresh, that a listed worker is alive, or that
a card was written by the worker it names. A card is one moment of one worker; a missing card proves
nothing. Who leads what is decided by leases, never by cards.

Who does what:

- The worker owns the loops, the time limit of each call and the task it runs in, builds and checks cards,
  decides who is online, keeps the last listing through failures, and warns of duplicate names.
- The provider stores cards, tells each card's age on a clock of its own, and deletes old cards.

A provider is made by a factory, `(options) -> provider`, registered as an entry point of the group
`drakkar.registry_providers`. The factory checks the options and raises `ValueError` with one line that
names the option. It opens nothing and may be called outside of an event loop. A factory object may also
have a method `lease_backend(options)`; a provider without one simply has no leases.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class EventLogger(Protocol):
    """A logger that takes an event name and fields: `logger.warning("fleet_card_invalid", file="a.json")`.

    A bound logger of structlog is one. Never pass secrets: fields are written as they come.
    """

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class ProviderConfigError(ValueError):
    """What the user configured cannot work, and the worker must not start.

    May be raised by a factory and by `RegistryProvider.start`; the message is one line that names the
    setting and says what to do. Any other error out of `start` leaves the worker running without peers.
    """


@dataclass(frozen=True, slots=True)
class PeerCard:
    """One listed card."""

    card: dict[str, Any]
    """The card as it was stored, fields unchecked and unknown ones included."""

    age_seconds: float | None
    """Seconds since the card was last published, on the provider's clock; None when it cannot tell."""


PeerCardList = list[PeerCard]


@dataclass(frozen=True, slots=True)
class RegistryContext:
    """What a provider learns at `start`. New fields always have defaults."""

    worker: str
    instance: str
    """Sixteen hex digits, new at every process start."""

    cluster: str
    logger: EventLogger
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options that the factory was given."""

    prune_after_seconds: float = 86400.0
    """Cards older than this are to be deleted. An explicit option of that name wins."""

    timeout_seconds: float = 5.0
    """The worker ends every call after this long. A provider that can say more than "timed out" gives up
    a little earlier by itself."""

    offline_after_seconds: float = 30.0
    """A card older than this is taken for that of an offline worker. For a provider that may know of a card
    only how old it is at least."""


class RegistryProvider(Protocol):
    """Stores cards. Every method runs on the worker's event loop and must not block it: blocking work goes
    to a thread of the provider's own, never to the loop's default executor, whose other users would wait.

    Every method may raise anything; the worker counts and logs it, and tries again at the next period. No
    method retries beyond its own call. Every call may be cancelled at its time limit, and after that the
    provider must be usable again; a cancelled `publish` or `withdraw` may or may not have taken effect.
    """

    async def start(self, ctx: RegistryContext) -> None:
        """Called once, before any other method.

        Must not need the store to be up if it may come up later. Raises `ProviderConfigError` when the
        configuration can never work.
        """

    async def publish(self, card: dict[str, Any]) -> None:
        """Store the whole card in place of any card of the same worker name.

        Must be atomic for readers: a listing sees the old card or the new one. Must refuse, before it
        touches the store, a card that is not JSON or is larger than 4096 bytes. Must create the card anew
        if it has vanished. Must not keep a reference to `card`.
        """

    async def list(self) -> PeerCardList:
        """Return every readable card, this worker's own included; an empty list when there is none.

        Must raise, not return an empty list, when the store cannot be read. Must list the good cards
        whatever lies beside them; what is not a JSON object is left out and logged as `fleet_card_invalid`
        once for each name. Should delete cards older than `prune_after_seconds`. The list is the caller's.
        """

    async def withdraw(self, worker: str, instance: str) -> None:
        """Delete the card of `worker`, but only while it holds `instance`; may be called again.

        Does nothing when there is no such card.
        """

    async def stop(self) -> None:
        """Called once, last, also when `start` failed. Close what was opened; wait for no store."""


RegistryFactory = Callable[[Mapping[str, Any]], RegistryProvider]

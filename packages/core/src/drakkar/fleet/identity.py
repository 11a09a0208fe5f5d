"""Who this worker is, and the card that says so."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from drakkar.fleet.card import SCHEMA_VERSION, Card

WorkerState = Literal["starting", "running", "draining"]


def new_instance() -> str:
    """Sixteen random hex digits: tells two processes with one worker name apart."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What does not change while the process runs."""

    worker: str
    cluster: str
    url: str
    version: str
    started_at: datetime
    backend: str = "python"
    instance: str = field(default_factory=new_instance)

    def card(self, state: WorkerState, now: datetime) -> Card:
        """The card to publish at `now`. Its `features` are empty, which tells peers that there is nothing to
        fetch; a card without the field would be asked for everything at every cycle."""
        return {
            "backend": self.backend,
            "cluster": self.cluster,
            "features": {},
            "heartbeat_at": timestamp(now),
            "instance": self.instance,
            "schema": SCHEMA_VERSION,
            "started_at": timestamp(self.started_at),
            "state": state,
            "url": self.url,
            "version": self.version,
            "worker": self.worker,
        }


def timestamp(moment: datetime) -> str:
    """`2026-10-13T09:40:11.000210Z`: UTC, always six digits after the point."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

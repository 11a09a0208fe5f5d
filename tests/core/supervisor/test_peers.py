"""What is believed of a card: little."""

from dataclasses import dataclass
from typing import Any

import pytest
from drakkar.supervisor.peers import PeerShare, shares_of


@dataclass
class Peer:
    card: dict[str, Any]
    liveness: str = "online"


def card(entry: Any, **fields: Any) -> dict[str, Any]:
    return {"worker": "worker-2", "state": "running", "features": {"fanouts": {"gc": entry}}, **fields}


GOOD = {"shards": 12, "held": 3, "ready": True}


def test_a_peer_at_work_counts() -> None:
    assert shares_of([Peer(card(GOOD))], "gc") == [PeerShare("worker-2", 12, 3, True)]


@pytest.mark.parametrize("liveness", ["offline", "unknown"])
def test_one_that_is_not_known_to_be_online_does_not(liveness: str) -> None:
    assert shares_of([Peer(card(GOOD), liveness)], "gc") == []


@pytest.mark.parametrize("state", ["starting", "draining", None, 3])
def test_one_that_is_not_running_does_not(state: Any) -> None:
    assert shares_of([Peer(card(GOOD, state=state))], "gc") == []


@pytest.mark.parametrize(
    "entry",
    [
        None,
        [],
        "12",
        {},
        {"shards": 12, "held": 3},
        {"shards": True, "held": 0, "ready": True},
        {"shards": 12, "held": True, "ready": True},
        {"shards": 12, "held": -1, "ready": True},
        {"shards": 12, "held": 13, "ready": True},
        {"shards": 12.0, "held": 3, "ready": True},
        {"shards": 12, "held": 3, "ready": 1},
        {"shards": 0, "held": 0, "ready": True},
        {"shards": 1025, "held": 0, "ready": True},
        {"shards": 10**400, "held": 0, "ready": True},
        {"shards": 12, "held": 10**400, "ready": True},
        {"shards": 12, "held": float("nan"), "ready": True},
    ],
    ids=lambda entry: str(entry)[:40],
)
def test_an_entry_that_makes_no_sense_does_not(entry: Any) -> None:
    assert shares_of([Peer(card(entry))], "gc") == []


@pytest.mark.parametrize(
    "features", [None, [], {}, {"fanouts": None}, {"fanouts": []}, {"fanouts": {"gcc": GOOD}}]
)
def test_features_without_the_fan_out_do_not(features: Any) -> None:
    assert shares_of([Peer(card(GOOD, features=features))], "gc") == []


def test_of_a_map_with_many_fan_outs_only_the_one_is_looked_at() -> None:
    many = {f"fan-{number}": GOOD for number in range(100_000)}

    assert len(shares_of([Peer(card(GOOD, features={"fanouts": {**many, "gc": GOOD}}))], "gc")) == 1

"""Who works on what, and how much is fair: arithmetic only."""

import math
from typing import Final

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193

SHED_PART: Final = 8
"""One in this many of the shards above the share is given up at once."""


def fnv32a(text: str) -> int:
    """The 32-bit FNV-1a hash of the UTF-8 bytes of `text` (by Fowler, Noll and Vo)."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def fair_share(shards: int, workers: int) -> int:
    """How many shards one of `workers` aims at; at least one worker is assumed."""
    return math.ceil(shards / max(1, workers))


def to_shed(held: int, share: int, wanted: int) -> int:
    """How many of `held` shards to give up at once, when peers lack `wanted` of their shares.

    One, and of many an eighth of what is too much: a thousand shards are levelled out in minutes, and a view
    of the peers that is wrong for a moment costs little.
    """
    excess = held - share
    if excess <= 0 or wanted <= 0:
        return 0
    return min(wanted, max(1, excess // SHED_PART))

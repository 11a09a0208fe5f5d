"""The arithmetic of shards."""

import pytest
from drakkar.supervisor.shares import fair_share, fnv32a, to_shed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0x811C9DC5),
        ("a", 0xE40C292C),
        ("b", 0xE70C2DE5),
        ("foobar", 0xBF9CF968),
        ("hello", 0x4F9F2CAB),
        ("chongo was here!\n", 0xD49930D5),
    ],
)
def test_fnv32a_is_the_published_hash(text: str, value: int) -> None:
    """Vectors from the test suite of its authors."""
    assert fnv32a(text) == value


def test_fnv32a_hashes_the_utf_8_bytes() -> None:
    value = 2166136261
    for byte in (0xE2, 0x82, 0xAC):
        value = ((value ^ byte) * 16777619) % 2**32

    assert fnv32a("€") == value


@pytest.mark.parametrize(
    ("shards", "workers", "share"), [(12, 3, 4), (12, 5, 3), (12, 1, 12), (12, 0, 12), (1, 9, 1), (10, 4, 3)]
)
def test_a_fair_share_is_rounded_up(shards: int, workers: int, share: int) -> None:
    assert fair_share(shards, workers) == share


@pytest.mark.parametrize(
    ("held", "share", "wanted", "count"),
    [
        (12, 6, 6, 1),
        (7, 6, 6, 1),
        (6, 6, 6, 0),
        (5, 6, 6, 0),
        (12, 6, 0, 0),
        (1024, 512, 512, 64),
        (1024, 512, 3, 3),
    ],
)
def test_it_gives_up_a_part_of_what_it_has_above_its_share_and_never_more_than_is_wanted(
    held: int, share: int, wanted: int, count: int
) -> None:
    assert to_shed(held, share, wanted) == count

"""Which of two rows stays, and what may be a key and a value."""

import json
from typing import Any

import pytest
from drakkar.cache.rows import (
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    MAX_VALUE_DEPTH,
    check_key,
    decode_value,
    encode_value,
    wins,
)
from hypothesis import given
from hypothesis import strategies as st
from support.caches import a_row

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@given(JSON)
def test_what_is_json_comes_back_as_it_was(value: Any) -> None:
    text, size = encode_value(value)
    assert decode_value(text) == json.loads(json.dumps(value))
    assert size == len(text.encode())


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [-float("inf")],
        "\ud800",
        {"\udfff": 1},
        ["a\udc00"],
        {1: "a"},
        {None: 1},
        {"a": {True: 1}},
        b"bytes",
        [b""],
        {1, 2},
        object(),
        {"a": object()},
        1j,
        itself(),
        nested(MAX_VALUE_DEPTH + 1),
        nested(100_000),
        "x" * MAX_VALUE_BYTES,
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_or_too_much_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^a cached value .{5,200}$"):
        encode_value(value)


def test_the_largest_and_the_deepest_value_are_taken() -> None:
    assert encode_value("x" * (MAX_VALUE_BYTES - 2))[1] == MAX_VALUE_BYTES
    assert decode_value(encode_value(nested(MAX_VALUE_DEPTH))[0]) == nested(MAX_VALUE_DEPTH)


@pytest.mark.parametrize(
    "text", ["", "x", "[1", "NaN", "Infinity", "1e999", "[" * 500_000, '"\\ud8', '"\\ud800"', "1" * 5000]
)
def test_a_text_that_is_no_json_is_an_error_of_one_kind(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_value(text)


@pytest.mark.parametrize(
    "key", ["a", " ", "a|b/c?d#e", "größe", "名" * 600, "\U0001f600", "\n", "x" * MAX_KEY_BYTES]
)
def test_a_key_is_any_text(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    "key", ["", None, 1, b"a", "\ud800", "a\0", "x" * (MAX_KEY_BYTES + 1), "名" * 700, ["a"]]
)
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match=r"^a cache key .{5,200}$"):
        check_key(key)


def test_the_later_row_wins() -> None:
    early, late = a_row(ms=1, origin_worker_id="worker-1"), a_row(ms=2, origin_worker_id="worker-2")
    assert wins(late, early)
    assert not wins(early, late)


def test_at_one_time_the_smaller_worker_name_wins() -> None:
    smaller, greater = a_row(origin_worker_id="worker-1"), a_row(origin_worker_id="worker-2")
    assert wins(smaller, greater)
    assert not wins(greater, smaller)
    assert not wins(smaller, smaller)

"""The bytes of a card are those of core, whose functions this package may not use."""

import json
from typing import Any

import pytest
from drakkar.fleet import card as core
from drakkar.fleet.testkit import make_card
from drakkar_etcd._cards import UnreadableError, decode_card, encode_card
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DEEP = [
    b"[" * 33 + b"]" * 33,
    b'{"a":' * 33 + b"1" + b"}" * 33,
    b'{"a":' * 32 + b"1" + b"}" * 32,
    b"[" * 3000,
]
ODD = [b"", b"null", b"[]", b"3", b"1" * 4000, b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', b"\xff"]
ODD += [b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b'{"a":"[[[[[["}', b"{}" + b" " * 4095, b'"' * 4000]


def outcome(call: Any, *arguments: object) -> object:
    try:
        return call(*arguments)
    except ValueError as error:
        return getattr(error, "reason", "refused")


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_card_is_written_as_core_writes_it(fields: dict[str, Any]) -> None:
    card = make_card("worker-1") | {"features": fields}
    expected = outcome(core.encode_card, card)

    found = outcome(encode_card, card)

    assert found == (expected if isinstance(expected, bytes) else "refused")


@pytest.mark.parametrize("data", DEEP + ODD, ids=lambda data: repr(data[:20]))
def test_bytes_are_read_as_core_reads_them(data: bytes) -> None:
    assert outcome(decode_card, data) == outcome(core.decode_card, data)


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_as_core_reads_them(data: bytes) -> None:
    assert outcome(decode_card, data) == outcome(core.decode_card, data)


@pytest.mark.parametrize(
    "card",
    [{}, {"worker": ""}, {"worker": 7}, make_card("worker-1") | {1: 2}, make_card("worker-1", x="x" * 4096)],
)
def test_what_is_no_card_of_a_worker_is_refused(card: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="card"):
        encode_card(card)


def test_a_card_that_is_too_large_is_not_looked_into() -> None:
    with pytest.raises(UnreadableError) as refused:
        decode_card(b"x" * 4097)
    assert refused.value.reason == "too_large"

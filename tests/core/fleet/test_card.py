"""The bytes of a card, what is refused, and for which reason."""

import json
import time
from typing import Any

import pytest
from drakkar.fleet.card import (
    MAX_CARD_BYTES,
    MAX_CARD_DEPTH,
    Card,
    CardError,
    CardSchemaError,
    check_card,
    decode_card,
    encode_card,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

SAMPLE: Card = {
    "backend": "python",
    "cluster": "search",
    "features": {"cache": {"cluster": {"key": "match|a", "ms": 1760348411000}}},
    "heartbeat_at": "2026-10-13T09:40:11.000210Z",
    "instance": "9c41e0b27fd34a1e",
    "schema": 1,
    "started_at": "2026-10-13T09:12:01.123456Z",
    "state": "running",
    "url": "http://10.0.3.17:8080/",
    "version": "2.4.0",
    "worker": "search-worker-3",
}
SAMPLE_BYTES = (
    b'{"backend":"python","cluster":"search","features":{"cache":{"cluster":{"key":"match|a",'
    b'"ms":1760348411000}}},"heartbeat_at":"2026-10-13T09:40:11.000210Z","instance":"9c41e0b27fd34a1e",'
    b'"schema":1,"started_at":"2026-10-13T09:12:01.123456Z","state":"running",'
    b'"url":"http://10.0.3.17:8080/","version":"2.4.0","worker":"search-worker-3"}'
)
REQUIRED: Card = {"schema": 1, "worker": "worker-1", "cluster": "", "url": "http://192.0.2.1:8080/"}


def reason_of(card: Any) -> str:
    """Why `check_card` refuses `card`; its message must name the field."""
    with pytest.raises(CardError) as caught:
        check_card(card)
    return f"{caught.value.reason}: {caught.value}"


def refusal(data: bytes) -> str:
    """Why `decode_card` refuses `data`."""
    with pytest.raises(CardError) as caught:
        decode_card(data)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value.reason


def encode_refusal(card: Any) -> str:
    with pytest.raises(CardError) as caught:
        encode_card(card)
    return caught.value.reason


def card_of(size: int, filler: str = "x") -> Card:
    """A card whose bytes are just `size`."""
    card = {**SAMPLE, "x_filler": ""}
    room = size - len(encode_card(card))
    width = len(filler.encode())
    return {**card, "x_filler": filler * (room // width) + "x" * (room % width)}


def nested(levels: int, kind: str = "[]") -> Card:
    """A card of `levels` levels, itself the first."""
    value: Any = []
    for level in range(levels - 2):
        value = {"": value} if kind == "{}" or (kind == "[{" and level % 2) else [value]
    return {**REQUIRED, "x": value}


# The bytes.


def test_the_sample_of_the_format_has_its_exact_bytes() -> None:
    assert encode_card(SAMPLE) == SAMPLE_BYTES
    assert decode_card(SAMPLE_BYTES) == SAMPLE


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("größe 検索 🛶", '"größe 検索 🛶"'.encode()),
        ("\u2028\x7f", '"\u2028\x7f"'.encode()),
        ('"\\/\b\f\n\r\t\x00\x1f', b'"\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f"'),
        (
            [1, -2, 0, 2**64, 1.5, -0.0, 1e300, 1e-7, 1.0],
            b"[1,-2,0,18446744073709551616,1.5,-0.0,1e+300,1e-07,1.0]",
        ),
        ([True, False, None, [], {}], b"[true,false,null,[],{}]"),
        ({"b": 1, "a": 2, "B": 3, "é": 4, "": 5}, '{"":5,"B":3,"a":2,"b":1,"é":4}'.encode()),
    ],
)
def test_it_writes_raw_utf8_sorted_keys_and_no_spaces(value: Any, data: bytes) -> None:
    assert encode_card({"x": value}) == b'{"x":' + data + b"}"


def test_the_order_of_keys_in_memory_does_not_matter() -> None:
    assert encode_card(dict(reversed(SAMPLE.items()))) == SAMPLE_BYTES


def test_unknown_fields_come_back_as_they_were() -> None:
    card = {**SAMPLE, "x_unknown": {"deep": [1, {"é": None}]}, "state": "a state of a newer release"}
    assert decode_card(encode_card(card)) == card
    check_card(card)


# The limits.


@pytest.mark.parametrize("filler", ["x", "é", "検", "🛶"])
def test_four_thousand_and_ninety_six_bytes_are_a_card(filler: str) -> None:
    data = encode_card(card_of(4096, filler))
    assert len(data) == MAX_CARD_BYTES == 4096
    assert encode_card(decode_card(data)) == data


@pytest.mark.parametrize("filler", ["x", "é", "検", "🛶"])
def test_one_byte_more_is_too_large(filler: str) -> None:
    assert encode_refusal(card_of(4097, filler)) == "too_large"
    assert refusal(encode_card(card_of(4096, filler)) + b" ") == "too_large"


def test_a_huge_card_is_refused_before_it_is_parsed() -> None:
    data = b"[" * 50_000_000
    started = time.process_time()
    assert refusal(data) == "too_large"
    assert time.process_time() - started < 1


@pytest.mark.parametrize("kind", ["[]", "{}", "[{"])
def test_the_deepest_card_goes_both_ways(kind: str) -> None:
    card = nested(MAX_CARD_DEPTH, kind)
    assert decode_card(encode_card(card)) == card


@pytest.mark.parametrize("kind", ["[]", "{}", "[{"])
def test_one_level_more_is_refused_both_ways(kind: str) -> None:
    card = nested(MAX_CARD_DEPTH + 1, kind)
    assert encode_refusal(card) == "not_json"
    assert refusal(json.dumps(card).encode()) == "not_json"


def test_brackets_in_text_are_no_nesting() -> None:
    card = {**REQUIRED, "x": '[{"\\' * 200, "[[" * 40: "]"}
    assert decode_card(encode_card(card)) == card


def test_brackets_side_by_side_are_no_nesting() -> None:
    card = {**REQUIRED, "x": [[]] * 500}
    assert decode_card(encode_card(card)) == card


# What the bytes may not be. The list is that of a shared folder in real life.

NOT_JSON = {
    "empty": b"",
    "white space": b" \n",
    "zeros": bytes(512),
    "truncated": SAMPLE_BYTES[:-1],
    "cut in a string": SAMPLE_BYTES[:60],
    "cut in a character": '{"worker":"é"}'.encode()[:-3],
    "two cards": SAMPLE_BYTES * 2,
    "long card's tail": SAMPLE_BYTES + SAMPLE_BYTES[-9:],
    "nested arrays": b"[" * 4096,
    "nested objects": b'{"":' * 1024,
    "nested and closed": b"[" * 2000 + b"]" * 2000,
    "invalid UTF-8": SAMPLE_BYTES.replace(b"search", b"s\xffarch"),
    "Latin-1": '{"worker":"é"}'.encode("latin-1"),
    "UTF-16": json.dumps(REQUIRED).encode("utf-16"),
    "an encoded surrogate": b'{"worker":"\xed\xa0\x80"}',
    "byte-order mark": b"\xef\xbb\xbf" + SAMPLE_BYTES,
    "NaN": b'{"schema":1,"x":NaN}',
    "infinity": b'{"schema":1,"x":Infinity}',
    "minus infinity": b'{"schema":1,"x":[-Infinity]}',
    "beyond a float": b'{"schema":1,"x":1e999}',
    "far below": b'{"schema":1,"x":-1E+400}',
    "a lone surrogate": b'{"worker":"\\ud800"}',
    "a lone surrogate as key": b'{"\\uDFFF":1}',
    "surrogates the wrong way round": b'{"worker":"\\udc00\\ud800"}',
    "single quotes": b"{'schema':1}",
    "a comment": b'{"schema":1}//',
    "a trailing comma": b'{"schema":1,}',
    "a raw newline in text": b'{"worker":"a\nb"}',
    "text": b"worker-1",
}
NOT_OBJECT = {"null": b"null", "array": b"[]", "number": b"3", "true": b"true", "string": b'"worker-1"'}


@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
def test_bytes_that_are_no_json_are_refused(data: bytes) -> None:
    assert refusal(data) == "not_json"


@pytest.mark.parametrize("data", NOT_OBJECT.values(), ids=NOT_OBJECT)
def test_json_that_is_no_object_is_refused(data: bytes) -> None:
    assert refusal(data) == "not_object"


def test_a_number_of_five_thousand_digits_is_too_large() -> None:
    assert refusal(b'{"schema":' + b"1" * 5000 + b"}") == "too_large"


def test_a_number_of_four_thousand_digits_harms_nobody() -> None:
    card = decode_card(b'{"schema":' + b"9" * 4000 + b"}")
    with pytest.raises(CardSchemaError) as caught:
        check_card(card)
    assert len(str(caught.value)) < 100
    assert len(encode_card(card)) == 4011


def test_of_a_repeated_key_the_last_value_counts() -> None:
    assert decode_card(b'{"worker":"a","worker":"b","x":{"y":1,"y":2}}') == {"worker": "b", "x": {"y": 2}}


def test_an_escaped_pair_of_surrogates_is_one_character() -> None:
    assert decode_card(b'{"worker":"\\ud83d\\udef6 \\u00e9 \\\\ud800"}') == {"worker": "🛶 é \\ud800"}


def test_white_space_around_a_card_is_allowed() -> None:
    assert decode_card(b" \r\n\t" + SAMPLE_BYTES + b"\n") == SAMPLE


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 2030 + b"[" * 33,
        b'\\"' * 2000 + b"[" * 90,
        b"[" * 40 + b'"' * 4001,
        b'"' * 4000 + b"[" * 40,
        b'"' + b"\\" * 4000 + b"[" * 40,
        b'[{"' * 1300,
        b"[1," * 1360,
    ],
)
def test_no_bytes_take_long_to_refuse(data: bytes) -> None:
    started = time.process_time()
    for _ in range(20):
        refusal(data)
    assert time.process_time() - started < 0.5  # a quadratic search took 20 x 0.13 s


# What a publisher may not write.


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), float("-inf"), "\ud800", "x\udfff", b"bytes", {1}, object(), 1j, 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_does_not_have_is_refused(value: object) -> None:
    for card in ({**SAMPLE, "x": value}, {**SAMPLE, "features": {"x": [value]}}):
        assert encode_refusal(card) == "not_json"


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), "\ud800"], ids=repr)
def test_a_key_that_json_does_not_have_is_refused(key: object) -> None:
    bad: dict[object, object] = {key: 1}
    for card in ({**SAMPLE, "features": {"x": [bad]}}, {**bad, "schema": 1}):
        assert encode_refusal(card) == "not_json"


@pytest.mark.parametrize("card", [None, [], "worker-1", 3, [("schema", 1)]])
def test_what_is_no_object_is_refused(card: object) -> None:
    assert encode_refusal(card) == "not_object"


def test_a_card_that_holds_itself_is_refused() -> None:
    card: Card = dict(SAMPLE)
    card["x"] = [card]
    assert encode_refusal(card) == "not_json"


# The fields.


def test_the_required_fields_alone_are_a_card() -> None:
    check_card(REQUIRED)


def test_the_sample_holds() -> None:
    check_card(SAMPLE)


def test_a_cluster_may_be_empty() -> None:
    check_card({**SAMPLE, "cluster": ""})


@pytest.mark.parametrize(
    "schema", [2, 0, -1, 999, 10**6, -(10**4000)], ids=lambda value: f"{value.bit_length()} bits"
)
def test_another_format_version_is_told_apart(schema: int) -> None:
    with pytest.raises(CardSchemaError) as caught:
        check_card({**SAMPLE, "schema": schema})
    assert caught.value.reason == "schema"
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("schema", [None, "1", True, 1.0, 1.5, [1], {}], ids=repr)
def test_a_schema_that_is_no_integer_is_invalid(schema: object) -> None:
    with pytest.raises(CardError) as caught:
        check_card({**SAMPLE, "schema": schema})
    assert not isinstance(caught.value, CardSchemaError)
    assert (caught.value.reason, str(caught.value)) == ("wrong_type", "schema must be an integer")


@pytest.mark.parametrize("field", ["schema", "worker", "cluster", "url"])
def test_a_required_field_that_is_missing_is_named(field: str) -> None:
    card = {key: value for key, value in SAMPLE.items() if key != field}
    assert reason_of(card) == f"missing_field: {field} is missing"


@pytest.mark.parametrize("field", ["worker", "url"])
def test_a_required_field_that_is_empty_is_named(field: str) -> None:
    assert reason_of({**SAMPLE, field: ""}) == f"empty_field: {field} is empty"


STRINGS = (
    *("worker", "cluster", "url"),
    *("instance", "backend", "version", "state", "started_at", "heartbeat_at"),
)


@pytest.mark.parametrize("field", STRINGS)
@pytest.mark.parametrize("value", [None, 1, True, ["x"], {"x": 1}], ids=repr)
def test_a_field_of_the_wrong_type_is_named(field: str, value: object) -> None:
    assert reason_of({**SAMPLE, field: value}) == f"wrong_type: {field} must be a string"


@pytest.mark.parametrize("value", [None, 1, True, ["x"], "x"], ids=repr)
def test_features_must_be_an_object(value: object) -> None:
    assert reason_of({**SAMPLE, "features": value}) == "wrong_type: features must be an object"


@pytest.mark.parametrize("field", ["instance", "backend", "version", "state", "started_at", "heartbeat_at"])
def test_an_optional_field_may_be_missing_or_empty(field: str) -> None:
    check_card({key: value for key, value in SAMPLE.items() if key != field})
    check_card({**SAMPLE, field: ""})


def test_the_schema_is_looked_at_first_then_the_required_fields_then_the_optional_ones() -> None:
    card: Card = {"schema": 2, "worker": "", "cluster": 3, "instance": 5, "features": []}
    seen = []
    for field, right in [
        ("schema", 1),
        ("worker", "worker-1"),
        ("cluster", ""),
        ("url", "http://192.0.2.1/"),
        ("instance", "00000000000000ff"),
        ("features", {}),
    ]:
        seen.append(reason_of(card).split(":")[0])
        card[field] = right
    assert seen == ["schema", "empty_field", "wrong_type", "missing_field", "wrong_type", "wrong_type"]
    check_card(card)


def test_a_card_of_another_version_may_break_every_other_rule() -> None:
    with pytest.raises(CardSchemaError):
        check_card({"schema": 2, "worker": 5})


# Anything at all.

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
_JSON = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)
_FIELD = st.sampled_from(["schema", *STRINGS, "features"]) | _TEXT
_CARD = st.dictionaries(_FIELD, _JSON | st.just(1), max_size=8)
_PIECE = st.sampled_from([*b'[]{}":,\\u0123d8fE+-. \n', *b"\xef\xbb\xbf\xff\x00"]) | st.integers(
    min_value=0, max_value=255
)
_MUTATION = st.tuples(st.integers(0, len(SAMPLE_BYTES)), st.integers(0, 40), st.binary(max_size=12))

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def decode_or_refuse(data: bytes) -> Card | None:
    try:
        card = decode_card(data)
    except CardError as error:
        assert error.reason in ("too_large", "not_json", "not_object")  # noqa: PT017  either is right
        return None
    return card


@relaxed
@given(st.binary(max_size=200) | st.lists(_PIECE, max_size=300).map(bytes) | _TEXT.map(str.encode))
@example(b'{"a":' * 1000)
@example(b"-" * 4096)
@example(b'{"\\u')
def test_any_bytes_are_an_object_or_a_card_error(data: bytes) -> None:
    decode_or_refuse(data)


@relaxed
@given(st.lists(_MUTATION, min_size=1, max_size=3))
def test_a_damaged_card_is_an_object_or_a_card_error(mutations: list[tuple[int, int, bytes]]) -> None:
    data = SAMPLE_BYTES
    for start, length, put in mutations:
        data = data[:start] + put + data[start + length :]
    card = decode_or_refuse(data)
    if card is not None:
        encode_card(card)  # whatever was read can be written again, to a page or an answer
        try:
            check_card(card)
        except CardError as error:
            assert error.reason  # noqa: PT017  either is right


@relaxed
@given(_CARD)
def test_what_was_encoded_decodes_to_the_same(card: Card) -> None:
    try:
        data = encode_card(card)
    except CardError as error:
        assert error.reason == "too_large"  # noqa: PT017  hypothesis may well fill a card
        return
    again = decode_card(data)
    assert again == card
    assert encode_card(again) == data


@relaxed
@given(_CARD, st.randoms(use_true_random=False))
def test_equal_cards_have_equal_bytes(card: Card, random: Any) -> None:
    items = list(card.items())
    random.shuffle(items)
    try:
        data = encode_card(card)
    except CardError:
        return
    assert encode_card(dict(items)) == data
    assert not data.endswith(b"\n")
    assert data.decode() == json.dumps(
        json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@relaxed
@given(_CARD)
def test_any_object_holds_as_a_card_or_says_why_not(card: Card) -> None:
    try:
        check_card(card)
    except CardSchemaError:
        assert card["schema"] != 1
    except CardError as error:
        assert str(error).split()[0] in card or error.reason == "missing_field"  # noqa: PT017
    else:
        assert card["schema"] == 1
        assert all(isinstance(card[field], str) for field in ("worker", "cluster", "url"))

"""Reading a page: in whatever pieces it comes, and whatever it is instead of a page."""

import json
import time
from itertools import count, pairwise
from typing import Any

import pytest
from drakkar.cache.changes import encode_page
from drakkar.cache.page import MAX_BODY_BYTES, MAX_ROW_BYTES, BadPageError, PageReader
from drakkar.cache.rows import MAX_KEY_BYTES, MAX_MS, MAX_STAMP_MS, MAX_VALUE_BYTES, Cursor, Row, encode_value
from hypothesis import given
from hypothesis import strategies as st
from support.caches import NOW_MS, a_row, page_of

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
ROWS = st.lists(
    st.builds(
        lambda key, value, expires: a_row(f"k{key}", value=encode_value(value)[0], expires_at_ms=expires),
        KEYS,
        st.dictionaries(TEXT, TEXT | st.lists(st.integers()), max_size=3),
        st.none() | st.integers(0, MAX_MS),
    ),
    max_size=8,
).map(lambda rows: [row._replace(updated_at_ms=NOW_MS + n) for n, row in enumerate(rows)])


def read(*pieces: bytes, after: Cursor | None = None) -> tuple[list[Row], bool]:
    reader = PageReader(after)
    for piece in pieces:
        reader.feed(piece)
    return reader.rows, reader.end()


def sized(rows: list[Row]) -> list[Row]:
    return [row._replace(size_bytes=len(row.value.encode())) for row in rows]


@given(rows=ROWS, more=st.booleans(), cuts=st.lists(st.integers(0, 3000), max_size=10), data=st.data())
def test_a_page_is_read_in_whatever_pieces_it_comes(
    rows: list[Row], more: bool, cuts: list[int], data: st.DataObject
) -> None:
    body = data.draw(st.sampled_from([page_of(rows, more), encode_page(rows, more)]))
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == (sized(rows), more)


@given(rows=ROWS, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans())
def test_a_page_is_read_however_it_is_written(rows: list[Row], indent: int | None, ascii_only: bool) -> None:
    page: dict[str, Any] = {
        "more": False,
        "version": 2,
        "rows": [row._asdict() | {"new": True} for row in rows],
    }
    body = json.dumps(page, indent=indent, ensure_ascii=ascii_only).encode() + b"\n"
    assert read(body) == (sized(rows), False)


def test_a_page_of_the_largest_values_of_ours_is_read() -> None:
    for filling in ('"', "\\", "\n", "x", "名"):
        fits = (MAX_VALUE_BYTES - 2) // len(json.dumps(filling, ensure_ascii=False).encode()[1:-1])
        text, size = encode_value(filling * fits)
        row = a_row("\x01" * MAX_KEY_BYTES, value=text, size_bytes=size)
        assert read(encode_page([row, row._replace(updated_at_ms=NOW_MS + 1)], True))[0][0] == row


GOOD = page_of([a_row()])
BAD: dict[str, bytes] = {
    "nothing": b"",
    "space": b"  ",
    "no json": b"<html>no</html>",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "no more": b'{"rows": []}',
    "no rows": b'{"more": true}',
    "more is no flag": b'{"rows": [], "more": 1}',
    "more is text": b'{"rows": [], "more": "true"}',
    "rows is an object": b'{"rows": {}, "more": false}',
    "rows is null": b'{"rows": null, "more": false}',
    "rows are texts": b'{"rows": ["a"], "more": false}',
    "rows are lists": b'{"rows": [[]], "more": false}',
    "a row without fields": b'{"rows": [{}], "more": false}',
    "cut off": GOOD[:-1],
    "cut off in a row": GOOD[:40],
    "cut off after a row": GOOD[: GOOD.rindex(b"]")],
    "something after it": GOOD + b"{}",
    "twice": GOOD + GOOD,
    "a comma too many": GOOD.replace(b"}]", b"},]"),
    "a comma too few": page_of([a_row(), a_row("b")]).replace(b"}, {", b"} {"),
    "deep nesting": b'{"rows": ' + b"[" * 1_000_000,
    "deep nesting in a row": b'{"rows": [{"key": ' + b"[" * 1_000_000,
    "deep nesting beside the rows": b'{"a": ' + b'{"a":' * 1_000_000,
    "nesting in a row": GOOD.replace(b'"expires_at_ms": null', b'"expires_at_ms": [null]'),
    "not utf-8": GOOD.replace(b'"a"', b'"\xff"'),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "half a surrogate pair in a key": GOOD.replace(b'"a"', b'"\\ud800"'),
    "half a surrogate pair in a value": GOOD.replace(b'\\"x\\"', b"\\udfff"),
    "half a surrogate pair in an origin": GOOD.replace(b"worker-2", b"\\udfff"),
    "NaN": GOOD.replace(b'"expires_at_ms": null', b'"expires_at_ms": NaN'),
    "a fraction": GOOD.replace(str(NOW_MS).encode(), b"1.5"),
    "a flag for a time": GOOD.replace(b'"expires_at_ms": null', b'"expires_at_ms": true'),
    "a huge number": GOOD.replace(str(NOW_MS).encode(), b"9" * 5000),
    "a time beyond all calendars": page_of([a_row(expires_at_ms=MAX_MS + 1)]),
    "a version that leaves no room for the next": page_of([a_row(ms=MAX_STAMP_MS + 1)]),
    "a key with NUL": page_of([a_row("a\0b")]),
    "a time before all": page_of([a_row(ms=-1)]),
    "an empty key": page_of([a_row("")]),
    "a long key": page_of([a_row("x" * (MAX_KEY_BYTES + 1))]),
    "a key that is a number": GOOD.replace(b'"a"', b"7"),
    "a large row": page_of([a_row(value="x" * 2 * MAX_ROW_BYTES)]),
    "many fields": b'{"rows": [{' + b'"a":1,' * 200_000,
    "one row after the other with nothing in it": b'{"rows": [' + b"{}," * 300_000,
    "more than a thousand rows": page_of([a_row(ms=NOW_MS + n) for n in range(1001)]),
    "a text that does not end": b'{"rows": [{"key": "' + b"\\" * 3_000_000,
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("size", [64 * 1024, 1000])
def test_what_is_no_page_is_refused(name: str, size: int) -> None:
    body = BAD[name]
    with pytest.raises(BadPageError, match=r"^.{5,250}$"):
        read(*(body[start : start + size] for start in range(0, len(body), size)))


@pytest.mark.parametrize(
    ("places", "after"),
    [
        ([(5, "a"), (4, "b")], None),
        ([(5, "b"), (5, "a")], None),
        ([(5, "a"), (5, "a")], None),
        ([(5, "a")], (5, "a")),
        ([(5, "a")], (5, "b")),
        ([(4, "z")], (5, "")),
        ([(6, "a"), (7, "a"), (5, "z")], (5, "a")),
    ],
)
def test_rows_out_of_order_are_refused(places: list[Cursor], after: Cursor | None) -> None:
    with pytest.raises(BadPageError, match=r"order"):
        read(page_of([a_row(key, ms) for ms, key in places]), after=after)


@pytest.mark.parametrize("piece", [1000, 128 * 1024, 4 * 1024 * 1024])
@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_row_has_a_mebibyte_at_most_however_it_comes(piece: int, place: int) -> None:
    def page(size: int) -> list[bytes]:
        rows = [a_row(f"k{number}") for number in range(6)]
        rows[place] = rows[place]._replace(value="")
        missing = size - len(json.dumps(rows[place]._asdict()))
        rows[place] = rows[place]._replace(value="x" * missing)
        body = page_of(rows)
        return [body[start : start + piece] for start in range(0, len(body), piece)]

    assert len(read(*page(MAX_ROW_BYTES))[0]) == 6
    with pytest.raises(BadPageError, match="more than 1048576 bytes"):
        read(*page(MAX_ROW_BYTES + 1))


def test_rows_of_one_time_are_in_the_order_of_code_points() -> None:
    keys = ["A", "a", "b", "ä", "名", "\U0001f600"]
    assert [row.key for row in read(page_of([a_row(key) for key in keys]), after=(NOW_MS, "0"))[0]] == keys


def test_a_body_is_not_read_beyond_its_limit() -> None:
    row = json.dumps(a_row(value="x" * 65_000)._asdict()).encode()
    reader = PageReader(None)

    def feed_for_ever() -> None:
        reader.feed(b'{"rows": [' + row)
        for number in count(1):
            reader.feed(b"," + row.replace(str(NOW_MS).encode(), str(NOW_MS + number).encode()))

    with pytest.raises(BadPageError, match=r"more than"):
        feed_for_ever()
    assert len(reader.rows) <= MAX_BODY_BYTES / 65_000


def test_no_piece_takes_long() -> None:
    """In processor time, beside one parsing of the largest row: what computes holds up the event loop."""
    bodies = {name: body for name, body in BAD.items() if len(body) > 100_000}
    bodies["large values"] = page_of([a_row(f"k{n:03}", value='"' * 300_000) for n in range(30)])
    bodies["small values"] = page_of([a_row(f"k{n:04}", value="{}" * 50) for n in range(1000)])
    largest_row = json.dumps({"value": '"' * (MAX_ROW_BYTES // 2)})
    yardstick = min(parsing(largest_row) for _ in range(3))
    ratios = {name: min(longest_piece(body) for _ in range(3)) / yardstick for name, body in bodies.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio > 12} == {}


def longest_piece(body: bytes) -> float:
    """The processor time of the piece that took longest, in seconds."""
    reader = PageReader(None)
    longest = 0.0
    for start in range(0, len(body), 65536):
        began = time.thread_time()
        try:
            reader.feed(body[start : start + 65536])
        except BadPageError:
            break
        finally:
            longest = max(longest, time.thread_time() - began)
    return longest


def parsing(text: str) -> float:
    began = time.thread_time()
    json.loads(text)
    return time.thread_time() - began

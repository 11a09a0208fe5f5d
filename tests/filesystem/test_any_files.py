"""Whatever lies in the folder, the good cards are listed."""

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from drakkar.fleet.card import MAX_CARD_BYTES, encode_card
from drakkar.fleet.testkit import make_card
from drakkar_filesystem._card_file import file_name
from hypothesis import given, settings
from hypothesis import strategies as st
from support.folders import Folder

GOOD = {worker: make_card(worker, features={"x": [1]}) for worker in ("worker-1", "worker-2")}
Files = dict[bytes, bytes]

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**300, -(10**4000), 1e308, 5e-324, -0.0, float("nan"), float("inf")]),
)
NO_WORKER = {"missing_field", "wrong_type", "empty_field"}

values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(st.characters(codec=None))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4)
    ),
    max_leaves=12,
)
workers = st.one_of(st.text(max_size=40), st.sampled_from(["worker-3", "search.1", "größe", "\n", "a/b"]))


@st.composite
def cards(draw: st.DrawFn) -> bytes:
    """Cards with fields of any kind, as `json.dumps` writes them: surrogates and NaN too."""
    card: dict[str, Any] = make_card(draw(workers))
    card |= draw(st.dictionaries(st.sampled_from([*card, "features", "x"]), values, max_size=3))
    return json.dumps(card, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A card with some bytes cut out and others put in."""
    data = draw(cards())
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.binary(max_size=8)) + data[at + draw(st.integers(0, 8)) :]


nested = st.builds(
    lambda bracket, depth, start: start + (bracket * depth)[: MAX_CARD_BYTES + 100],
    st.sampled_from([b"[", b'{"a":', b"[{", b'["]",', b"]"]),
    st.integers(1, 4100),
    st.sampled_from([b"", b"\xef\xbb\xbf", b'{"worker":"worker-3","a":', b" "]),
)
repeated = st.builds(
    lambda part, times: part * times, st.binary(min_size=1, max_size=3), st.integers(1, 4200)
)
contents = st.one_of(
    cards(),
    damaged(),
    nested,
    repeated,
    st.binary(max_size=300),
    values.map(lambda v: json.dumps(v).encode()),
)
plain_names = st.binary(min_size=1, max_size=200).map(
    lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")
)
names = st.one_of(
    plain_names.map(lambda name: name + b".json"),
    plain_names.map(lambda name: b"." + name + b".tmp"),
    plain_names.filter(lambda name: name not in (b".", b"..")),
    workers.map(lambda worker: file_name(worker).encode()),
)
in_their_place = st.builds(
    lambda worker, extra: (file_name(worker).encode(), encode_card(make_card(worker, x=extra))),
    workers.filter(bool),
    st.text(max_size=20),
)
good_names = {file_name(worker).encode() for worker in GOOD}
folders = st.lists(st.one_of(st.tuples(names, contents), in_their_place), max_size=12).map(
    lambda files: {name: data for name, data in files if name not in good_names}
)


async def look(path: Path, files: Files) -> None:
    folder = Folder(path)
    for worker, card in GOOD.items():
        folder.write(file_name(worker), encode_card(card))
    for name, data in files.items():
        (folder.workers / os.fsdecode(name)).write_bytes(data)
    provider = await folder.start("worker-1")
    try:
        for _ in range(2):
            listed = [peer.card for peer in await provider.list()]
            await provider.publish(GOOD["worker-1"])  # from now on with ages
            for card in GOOD.values():
                assert card in listed
            for card in listed:
                json.dumps(card, ensure_ascii=False, allow_nan=False).encode()
            named = [card["worker"] for card in listed]
            assert len(named) == len(set(named))
    finally:
        await folder.stop()
    assert {os.fsencode(name) for name in folder.names()} == set(files) | good_names
    for file, reason in folder.rejected().items():
        assert file.isprintable()
        assert reason in {"too_large", "not_json", "not_object", "wrong_name"} | NO_WORKER


@pytest.mark.timeout(1800)
def test_the_good_cards_are_listed_beside_any_files(long: bool) -> None:
    @settings(max_examples=5000 if long else 200, deadline=None)
    @given(folders)
    def holds(files: Files) -> None:
        with tempfile.TemporaryDirectory() as path:
            asyncio.run(look(Path(path), files))

    holds()

"""Keys: what names become, and what comes back."""

from base64 import b64decode

import pytest
from drakkar_etcd._wire import Folder, encoded
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Folder("/fleet/cards/")
NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


@given(NAMES)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    assert FOLDER.name(FOLDER.key(name)) == name


@given(NAMES)
def test_a_name_leads_to_one_key_within_its_folder_that_a_shell_can_take(name: str) -> None:
    key = b64decode(FOLDER.key(name)).decode("ascii")

    assert key.startswith(FOLDER.path)
    assert "/" not in key.removeprefix(FOLDER.path)
    assert b64decode(FOLDER.range["key"]) <= key.encode() < b64decode(FOLDER.range["range_end"])


@given(st.binary())
def test_a_foreign_key_has_a_name_only_if_that_name_has_this_key(tail: bytes) -> None:
    key = encoded(FOLDER.path.encode() + tail)
    name = FOLDER.name(key)

    assert name is None or FOLDER.key(name) == key
    assert FOLDER.shown(key).isprintable()


def test_a_neighbour_whose_prefix_begins_alike_is_outside() -> None:
    other = b64decode(Folder("/fleet/cards-2/").key("worker-1"))

    assert not b64decode(FOLDER.range["key"]) <= other < b64decode(FOLDER.range["range_end"])


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        FOLDER.key("a\ud800")

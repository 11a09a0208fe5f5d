"""The options, and what is said about those that do not hold."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drakkar_filesystem import make_registry
from drakkar_filesystem.settings import FilesystemSettings, read_settings


def test_it_takes_a_folder_alone_and_treats_it_as_explicit() -> None:
    assert read_settings({"dir": "/mnt/fleet"}) == FilesystemSettings(Path("/mnt/fleet"), True, None)


def test_it_takes_every_option() -> None:
    options = {"dir": Path("/mnt/fleet"), "explicit": False, "prune_after_seconds": 60}

    assert read_settings(options) == FilesystemSettings(Path("/mnt/fleet"), False, 60.0)


def test_a_relative_folder_stays_where_it_was_when_the_process_moves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    assert read_settings({"dir": "fleet"}).dir == tmp_path / "fleet"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "fleet.registry.filesystem.dir is empty: name a folder that every worker of the fleet sees"),
        ({"dir": ""}, "fleet.registry.filesystem.dir is empty"),
        ({"dir": "  "}, "fleet.registry.filesystem.dir is empty"),
        ({"dir": None}, "fleet.registry.filesystem.dir must be a path, not nothing"),
        ({"dir": 7}, "fleet.registry.filesystem.dir must be a path, not a number"),
        ({"dir": ["/mnt"]}, "fleet.registry.filesystem.dir must be a path, not a list"),
        ({"dir": {"a": 1}}, "fleet.registry.filesystem.dir must be a path, not a map"),
        ({"dir": b"/mnt"}, "fleet.registry.filesystem.dir must be a path, not something else"),
        ({"dir": "/mnt\0x"}, "fleet.registry.filesystem.dir holds a character that no path can have"),
        ({"dir": "/mnt/\ud800"}, "fleet.registry.filesystem.dir holds a character that no path can have"),
        ({"explicit": "yes"}, "fleet.registry.filesystem.explicit must be true or false, not text"),
        ({"explicit": 1}, "fleet.registry.filesystem.explicit must be true or false, not a number"),
        ({"folder": "/mnt"}, "fleet.registry.filesystem has no option 'folder', there is dir,"),
        ({"prune_seconds": 1}, "has no option 'prune_seconds', did you mean prune_after_seconds?"),
        ({"a\nb": 1}, r"fleet.registry.filesystem has no option 'a\nb', there is"),
        ({7: 1}, "fleet.registry.filesystem has no option '7', there is"),
    ],
)
def test_it_names_the_option_that_does_not_hold(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the message is looked at below
        make_registry({"dir": "/mnt/fleet"} | options if options else {})

    assert told in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("key", ["folder", "expliict"])
@pytest.mark.parametrize("make", [make_registry, make_registry.lease_backend])
def test_what_the_worker_sets_itself_is_not_offered_to_people(make: Callable[..., object], key: str) -> None:
    with pytest.raises(ValueError, match=f"has no option '{key}', there is dir, prune_after_seconds$"):
        make({"dir": "/mnt/fleet", key: True})


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0"),
        (-1, "-1"),
        pytest.param(-(10**400), "-1e+11", id="huge"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (-float("inf"), "-1e+11"),
        (True, "true or false"),
        ("60", "text"),
        ([60], "a list"),
    ],
)
def test_it_refuses_an_age_that_is_no_number_of_seconds(seconds: Any, shown: str) -> None:
    told = f"prune_after_seconds must be a number of seconds above 0, not {re.escape(shown)}$"
    with pytest.raises(ValueError, match=told):
        read_settings({"dir": "/mnt/fleet", "prune_after_seconds": seconds})


def test_an_age_of_any_size_is_taken() -> None:
    settings = read_settings({"dir": "/mnt/fleet", "prune_after_seconds": 10**400})

    assert settings.prune_after_seconds is not None
    assert settings.prune_after_seconds > 86400 * 365 * 1000

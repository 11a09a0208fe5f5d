"""What is installed, as it is shown."""

import json

from support.commands import Drakkar

BROKEN = "raise ImportError('no such\\nlibrary \\x1b[31m [red]')"
LEAVES = "raise SystemExit(3)"


def test_it_lists_every_provider(drakkar: Drakkar) -> None:
    ended = drakkar("providers")

    assert (ended.status, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["cardbox", "cardbox", "1.0", "ok"] in rows
    assert ["none", "drakkar-core", "0.1.0", "ok"] in rows


def test_it_lists_them_as_json(drakkar: Drakkar) -> None:
    rows = {row["name"]: row for row in json.loads(drakkar("providers", "--json").out)}

    assert rows["cardbox"] == {
        "name": "cardbox",
        "distribution": "cardbox",
        "version": "1.0",
        "state": "ok",
        "chosen": True,
        "error": None,
    }


def test_it_tells_why_one_does_not_load(drakkar: Drakkar) -> None:
    drakkar.install(
        "broken",
        {"broken": "broken:make", "leaves": "leaves:make"},
        {"broken.py": BROKEN, "leaves.py": LEAVES},
    )

    ended = drakkar("providers")

    assert (ended.status, ended.err) == (0, "")
    (line,) = (line for line in ended.out.splitlines() if line.split()[:1] == ["broken"])
    assert "does not load: ImportError: no such library" in line
    assert "[red]" in line
    assert "\x1b" not in ended.out
    assert "does not load: SystemExit" in ended.out
    assert "cardbox" in ended.out


def test_it_tells_which_one_is_replaced(drakkar: Drakkar) -> None:
    drakkar.install("another", {"cardbox": "cardbox:Cardbox"}, {})

    rows = json.loads(drakkar("providers", "--json").out)
    states = {row["distribution"]: row["state"] for row in rows if row["name"] == "cardbox"}
    assert states == {
        "another": "ok",
        "cardbox": "replaced: another distribution has this name and comes first",
    }

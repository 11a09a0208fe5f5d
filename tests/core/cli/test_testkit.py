"""The checks of the kit, run over an installed provider."""

import json
import signal

from drakkar.fleet.testkit import PUBLISHING_CHECKS
from support.commands import Drakkar, end_of, wait_for

NAMES = [check.__name__ for check in PUBLISHING_CHECKS]


def options(drakkar: Drakkar, **more: object) -> str:
    return json.dumps({"dir": str(drakkar.cards)} | more)


def test_a_sound_provider_passes_every_check(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--options", options(drakkar))

    assert ended.out.splitlines() == [f"ok    {name}" for name in NAMES]
    assert (ended.status, ended.err) == (0, "")


def test_a_broken_provider_fails_the_check_of_what_is_broken(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--json", "--options", options(drakkar, forgets_to_withdraw=True))

    results = json.loads(ended.out)
    assert (ended.status, ended.err) == (1, "")
    assert [result["check"] for result in results] == NAMES
    failed = [result["check"] for result in results if not result["passed"]]
    assert "check_withdraw_removes_the_card" in failed
    assert "check_card_comes_back" not in failed
    assert all((result["error"] is None) == result["passed"] for result in results)


def test_a_failed_check_is_one_line_that_says_why(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--options", options(drakkar, forgets_to_withdraw=True))

    lines = ended.out.splitlines()
    assert len(lines) == len(NAMES)
    (line,) = (line for line in lines if line.startswith("FAIL  check_withdraw_removes_the_card: "))
    assert "expected no card" in line


def test_options_that_the_provider_refuses_fail_every_check(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--options", '{"dir": 7}')

    assert ended.status == 1
    assert f"FAIL  {NAMES[0]}: " in ended.out


def test_a_package_without_a_store_to_test_cannot_be_checked(drakkar: Drakkar) -> None:
    drakkar.install("bare", {"bare": "bare:make"}, {"bare.py": "def make(options): ..."})

    ended = drakkar("testkit", "bare")

    assert (ended.status, ended.out) == (2, "")
    assert ended.error.startswith("bare cannot be checked: its package needs a module bare.testing")


def test_a_signal_ends_it(drakkar: Drakkar) -> None:
    process = drakkar.start("testkit", "cardbox", "--options", options(drakkar, list_seconds=3600))
    wait_for((drakkar.cards / "list.began").exists)
    process.send_signal(signal.SIGINT)
    ended = end_of(process)

    assert (ended.status, ended.out) == (1, "")
    assert ended.error == f"interrupted after 0 of {len(NAMES)} checks"

"""The checks of the kit, run over an installed provider."""

import json
import signal

import pytest
from drakkar.fleet.testkit import PUBLISHING_CHECKS
from drakkar.leases.testkit import LEASE_CHECKS
from support.commands import Drakkar, end_of, wait_for

READING = ["check_list_shape", "check_age_is_none_or_non_negative"]
CARDS = [*READING, *(check.__name__ for check in PUBLISHING_CHECKS)]
LEASES = [check.__name__ for check in LEASE_CHECKS]
LEASING = """
from cardbox import Cardbox
from drakkar.leases.memory import make_lease_backend


class Factory:
    __call__ = staticmethod(Cardbox)
    lease_backend = staticmethod(make_lease_backend)


make = Factory()
"""


def options(drakkar: Drakkar, **more: object) -> str:
    return json.dumps({"dir": str(drakkar.cards)} | more)


def test_a_sound_provider_passes_every_check(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--options", options(drakkar))

    assert ended.out.splitlines() == [
        "cards",
        *(f"ok    {name}" for name in CARDS),
        "leases",
        f"-     {len(LEASES)} checks do not apply: cardbox has no leases",
        f"{len(CARDS)} passed, 0 failed, {len(LEASES)} do not apply",
    ]
    assert (ended.status, ended.err) == (0, "")


def test_a_provider_without_cards_is_held_to_what_applies(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "none")

    assert ended.out.splitlines() == [
        "cards",
        *(f"ok    {name}" for name in READING),
        f"-     {len(PUBLISHING_CHECKS)} checks do not apply: none publishes no cards",
        "leases",
        *(f"ok    {name}" for name in LEASES),
        f"{len(READING) + len(LEASES)} passed, 0 failed, {len(PUBLISHING_CHECKS)} do not apply",
    ]
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.parametrize(("kit", "names"), [("cards", CARDS), ("leases", LEASES)])
def test_one_kit_can_be_run_alone(kit: str, names: list[str], drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "none", "--only", kit, "--json")

    results = json.loads(ended.out)
    assert (ended.status, ended.err) == (0, "")
    assert [(result["kit"], result["check"]) for result in results] == [(kit, name) for name in names]
    assert all((result["passed"] is None) == (result["skipped"] is not None) for result in results)


def test_a_broken_provider_fails_the_check_of_what_is_broken(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--json", "--options", options(drakkar, forgets_to_withdraw=True))

    results = [result for result in json.loads(ended.out) if result["kit"] == "cards"]
    assert (ended.status, ended.err) == (1, "")
    assert [result["check"] for result in results] == CARDS
    failed = [result["check"] for result in results if not result["passed"]]
    assert "check_withdraw_removes_the_card" in failed
    assert "check_card_comes_back" not in failed
    assert all((result["error"] is None) == result["passed"] for result in results)


def test_a_failed_check_is_one_line_that_says_why(drakkar: Drakkar) -> None:
    ended = drakkar("testkit", "cardbox", "--options", options(drakkar, forgets_to_withdraw=True))

    lines = ended.out.splitlines()
    (line,) = (line for line in lines if line.startswith("FAIL  check_withdraw_removes_the_card: "))
    assert "expected no card" in line


def test_options_that_the_provider_refuses_are_one_line(drakkar: Drakkar) -> None:
    for given in (["--options", '{"dir": 7}'], []):
        ended = drakkar("testkit", "cardbox", *given)

        assert (ended.status, ended.out) == (2, "")
        assert ended.error == "--options: cardbox: dir is missing; name a folder"


HASTY = """
def make(options):
    {factory}


make.lease_backend = make
"""
HASTY_STORE = """
from cardbox.testing import Store as Cards


class Store(Cards):
    def __init__(self, options, prune_after_seconds=600):
        self._file = options["file"]

    make_lease_backend = Cards.make_provider
"""


@pytest.mark.parametrize("kit", ["cards", "leases"])
@pytest.mark.parametrize(
    ("factory", "told"),
    [
        ("raise ValueError('file is missing')", "--options: hasty: file is missing"),
        ("return options['file']", "--options: hasty cannot be made: KeyError: 'file'"),
        ("return 7", "--options: hasty: its factory made a int, which lacks start"),
        (
            "from cardbox import Cardbox; return Cardbox(dict(dir='x'))",
            "--options: hasty.testing.Store fails with them: KeyError: 'file'",
        ),
    ],
)
def test_the_factory_is_asked_before_any_check_is_run(
    factory: str, told: str, kit: str, drakkar: Drakkar
) -> None:
    """Its reason is the better one: a store takes options that hold."""
    modules = {"hasty/__init__.py": HASTY.format(factory=factory), "hasty/testing.py": HASTY_STORE}
    drakkar.install("hasty", {"hasty": "hasty:make"}, modules)

    ended = drakkar("testkit", "hasty", "--only", kit)

    assert (ended.status, ended.out, ended.error) == (2, "", told)


FAILING = """
from cardbox import Cardbox
from drakkar.fleet.provider import ProviderConfigError
from drakkar.leases.memory import make_lease_backend


class Failing(Cardbox):
    async def start(self, ctx):
        await super().start(ctx)
        raise {error}


class Factory:
    __call__ = staticmethod(Failing)

    def lease_backend(self, options):
        backend = make_lease_backend(dict())

        async def start(ctx):
            raise {error}

        backend.start = start
        return backend


make = Factory()
"""
FAILING_STORE = """
import cardbox.testing
from failing import make


class Store(cardbox.testing.Store):
    lease_ttl_seconds = 1.0

    def make_provider(self):
        return make(self._options)

    def make_lease_backend(self):
        return make.lease_backend(self._options)

    def advance_leases(self, seconds): ...
"""


@pytest.mark.parametrize("kit", ["cards", "leases"])
@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        ("ProviderConfigError('password: is wrong')", 2, "--options: password: is wrong"),
        ("ConnectionError('store-1: refused')", 1, "the store cannot be used: store-1: refused"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(
    error: str, status: int, told: str, kit: str, drakkar: Drakkar
) -> None:
    modules = {"failing/__init__.py": FAILING.format(error=error), "failing/testing.py": FAILING_STORE}
    drakkar.install("failing", {"failing": "failing:make"}, modules)

    ended = drakkar("testkit", "failing", "--only", kit, "--options", options(drakkar))

    assert (ended.status, ended.out, ended.error) == (status, f"{kit}\n", told)


def test_options_may_be_in_a_file(drakkar: Drakkar) -> None:
    file = drakkar.folder / "options.json"
    file.write_text(options(drakkar))
    arguments = ("testkit", "cardbox", "--only", "cards", "--json", "--options")

    ended = drakkar(*arguments, f"@{file}")
    missing = drakkar(*arguments, "@nowhere.json")

    assert ended.status == 0
    assert (missing.status, missing.out) == (2, "")
    assert missing.error == "--options: the file nowhere.json cannot be read: No such file or directory"


def test_a_package_without_a_store_to_test_cannot_be_checked(drakkar: Drakkar) -> None:
    drakkar.install("bare", {"bare": "bare:make"}, {"bare.py": "def make(options): ..."})

    ended = drakkar("testkit", "bare")

    assert (ended.status, ended.out) == (2, "")
    assert ended.error.startswith("bare cannot be checked: its package needs a module bare.testing")


def test_leases_that_cannot_be_checked_are_not_passed_over(drakkar: Drakkar) -> None:
    testing = "from cardbox.testing import Store"
    modules = {"leasing/__init__.py": LEASING, "leasing/testing.py": testing}
    drakkar.install("leasing", {"leasing": "leasing:make"}, modules)

    refused = drakkar("testkit", "leasing", "--options", options(drakkar))
    ended = drakkar("testkit", "leasing", "--only", "cards", "--options", options(drakkar))

    assert (refused.status, refused.out) == (2, "")
    assert refused.error.startswith(
        "leasing has leases, but leasing.testing.Store has no make_lease_backend;"
    )
    assert ended.out.splitlines()[-1] == f"{len(CARDS)} passed, 0 failed, 0 do not apply"


def test_a_signal_ends_it(drakkar: Drakkar) -> None:
    process = drakkar.start("testkit", "cardbox", "--options", options(drakkar, list_seconds=3600))
    wait_for((drakkar.cards / "list.began").exists)
    process.send_signal(signal.SIGINT)
    ended = end_of(process)

    assert (ended.status, ended.out) == (1, "cards\n")
    assert ended.error == f"interrupted after 0 of {len(CARDS) + len(LEASES)} checks"

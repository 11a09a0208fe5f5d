"""The settings in effect, as they are shown."""

import json

import pytest
import yaml
from drakkar.settings import load_settings, masked
from support.commands import Drakkar


@pytest.mark.parametrize("arguments", [["config"], ["config", "show"]])
def test_it_shows_the_settings_as_yaml(arguments: list[str], drakkar: Drakkar) -> None:
    ended = drakkar(*arguments)

    assert (ended.status, ended.err) == (0, "")
    assert yaml.safe_load(ended.out) == masked(load_settings(environ={"DK_STORAGE__DIR": ""}))


def test_it_shows_them_as_json(drakkar: Drakkar) -> None:
    assert json.loads(drakkar("config", "--json").out) == yaml.safe_load(drakkar("config").out)


def test_what_it_shows_is_a_settings_file(drakkar: Drakkar) -> None:
    keys = ["worker_name=Wörker", "ui.port=7", "fleet.registry.redis.a=[1]"]
    first = drakkar("config", *(f"--set={key}" for key in keys))
    (drakkar.folder / "drakkar.yaml").write_text(first.out)

    assert drakkar("config").out == first.out


def test_a_file_is_given_or_named_or_found(drakkar: Drakkar) -> None:
    for number, name in enumerate(["given.yaml", "named.yaml", "drakkar.yaml"]):
        (drakkar.folder / name).write_text(f"ui: {{port: {number}}}")

    def port(*arguments: str, **environ: str) -> int:
        shown: int = json.loads(drakkar("config", "--json", *arguments, **environ).out)["ui"]["port"]
        return shown

    assert port("-c", "given.yaml", DK_CONFIG="named.yaml") == 0
    assert port(DK_CONFIG="named.yaml") == 1
    assert port(DK_CONFIG="") == port() == 2


def test_a_named_file_must_exist(drakkar: Drakkar) -> None:
    ended = drakkar("config", DK_CONFIG="missing.yaml")

    assert (ended.status, ended.out) == (2, "")
    assert ended.error.startswith("missing.yaml: there is no such file")


def test_a_found_file_that_cannot_be_read_is_not_passed_over(drakkar: Drakkar) -> None:
    (drakkar.folder / "drakkar.yaml").mkdir()

    assert drakkar("config").error.startswith("drakkar.yaml: cannot be read: Is a directory")


def test_it_sets_keys(drakkar: Drakkar) -> None:
    ended = drakkar("config", "--json", "--set=ui.port=1", "--set", "worker_name=a=b", "--set=ui.port=2")
    shown = json.loads(ended.out)

    assert (shown["ui"]["port"], shown["worker_name"]) == (2, "a=b")


def test_it_shows_no_secret(drakkar: Drakkar) -> None:
    environ = {
        "DK_UI__AUTH_TOKEN": "hidden",
        "DK_FLEET__REGISTRY__REDIS__URL": "redis://user:hidden@host/0?password=hidden",
        "DK_FLEET__REGISTRY__PLUGIN_OPTIONS": '{"nested": [{"api_key": "hidden", "name": "shown"}]}',
    }

    for arguments in (["config"], ["config", "--json"]):
        ended = drakkar(*arguments, **environ)
        assert ended.status == 0
        assert "hidden" not in ended.out + ended.err
        assert "shown" in ended.out


def test_check_only_tells_that_they_are_fine(drakkar: Drakkar) -> None:
    ended = drakkar("config", "check", "--set", "fleet.registry.provider=none")

    assert (ended.status, ended.out, ended.err) == (0, "the settings are fine\n", "")


NONE = "fleet.registry.provider=none"
CARDBOX = "fleet.registry.provider=cardbox"
SWEEP = "supervisor.workers=sweep"
PICKY = """
from drakkar.fleet.none import make_registry


class Factory:
    __call__ = staticmethod(make_registry)

    def lease_backend(self, options):
        raise ValueError("picky.file is missing")


make = Factory()
"""
"""A provider whose leases refuse every option."""

CARDBOX_DIR = 'fleet.registry.plugin_options={"dir": "cards"}'


@pytest.mark.parametrize(
    ("keys", "environ", "error"),
    [
        (["ui.port=x"], {}, "ui.port must be"),
        (["fleet.registry.provider=nonsense"], {}, "fleet.registry.provider is 'nonsense'"),
        ([CARDBOX], {}, "fleet.registry.provider 'cardbox': dir is missing"),
        ([NONE], {"WORKER_ID": "a\nb"}, "WORKER_ID (the variable of worker_name_env)"),
        ([NONE, "cluster_name_env=C"], {"C": "a\nb"}, "C (the variable of"),
        (
            [NONE, "supervisor.workers=swep"],
            {},
            "supervisor.workers: there is no background worker 'swep', did",
        ),
        (
            [NONE, "supervisor.workers=notify"],
            {},
            "supervisor.workers: notify works only where its gate prune does",
        ),
        ([NONE, "supervisor.workers=fails"], {}, "supervisor.workers: 'fails' (jobs:fails) cannot be loaded"),
        (
            [NONE, SWEEP, "supervisor.leases.provider=x"],
            {},
            "supervisor.leases.provider is 'x', and there is",
        ),
        ([NONE, "supervisor.leases.provider=x"], {}, "supervisor.leases.provider is 'x', and there is"),
        (
            [NONE, SWEEP, "supervisor.leases.provider=cardbox"],
            {},
            "supervisor.leases.provider 'cardbox' has no leases; those that have: ",
        ),
        (
            [CARDBOX, CARDBOX_DIR, SWEEP],
            {},
            "fleet.registry.provider 'cardbox' has no leases; set supervisor.leases.provider to one of those",
        ),
        (
            [NONE, SWEEP, "supervisor.leases.provider=picky"],
            {},
            "leases of supervisor.leases.provider 'picky': picky.file is missing",
        ),
        (
            ["fleet.registry.provider=picky", SWEEP],
            {},
            "leases of fleet.registry.provider 'picky': picky.file is missing",
        ),
        (
            [NONE, SWEEP, "supervisor.leases.ttl_seconds=0.05"],
            {},
            "supervisor.leases.ttl_seconds (0.05) is less",
        ),
        ([NONE, "supervisor.leases.ttl_seconds=0.05"], {}, "supervisor.leases.ttl_seconds (0.05) is less"),
    ],
)
def test_check_tells_what_a_worker_would_not_take_in_the_same_words(
    keys: list[str], environ: dict[str, str], error: str, drakkar: Drakkar
) -> None:
    drakkar.install_jobs("sweep", "notify", "prune", "fails")
    drakkar.install("picky", {"picky": "picky:make"}, {"picky.py": PICKY})
    arguments = [f"--set={key}" for key in keys]

    checked = drakkar("config", "check", *arguments, **environ)
    ran = drakkar("run", "--log-level=error", *arguments, **environ)

    assert (checked.status, checked.out) == (2, "")
    assert checked.error.removeprefix("command line: ").startswith(error)
    assert ran == checked
    assert not drakkar.cards.exists()


def test_check_takes_what_a_worker_takes(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep", "notify", "prune")
    keys = [NONE, "supervisor.workers=notify,sweep,prune", "supervisor.leases.ttl_seconds=1"]

    ended = drakkar("config", "check", *(f"--set={key}" for key in keys))

    assert (ended.status, ended.out, ended.err) == (0, "the settings are fine\n", "")


def test_check_tells_that_each_process_would_lead_by_itself(drakkar: Drakkar) -> None:
    drakkar.install_jobs("sweep")
    keys = [CARDBOX, CARDBOX_DIR, SWEEP, "supervisor.leases.provider=none"]

    ended = drakkar("config", "check", *(f"--set={key}" for key in keys))

    assert (ended.status, ended.out) == (0, "the settings are fine\n")
    assert "each process leads by itself" in ended.err

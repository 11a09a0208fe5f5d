"""Provider packages of other people, built, installed beside core and ours, and chosen by name."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.building import Built, Environment, build, make_environment
from support.repository import ROOT, Package

INVALID = "fleet_registry_entry_point_invalid"
LOAD_FAILED = "fleet_registry_entry_point_load_failed"

# Makes the provider that it is told, and prints what came of it. With a second argument, publishes with it.
SCRIPT = """
import asyncio, json, sys
from drakkar.errors import ConfigError
from drakkar.fleet import plugins, testkit

class Logger:
    lines = []
    def __getattr__(self, level):
        return lambda event, **fields: self.lines.append([level, event, fields])

async def publish(provider):
    await provider.start(testkit.make_context("worker-1"))
    await provider.publish(testkit.make_card("worker-1"))
    listed = await provider.list()
    await provider.stop()
    return [peer.card["worker"] for peer in listed]

made = error = listed = None
try:
    provider = plugins.make_provider(sys.argv[1], json.loads(sys.argv[2]), Logger())
    made = f"{type(provider).__module__}.{type(provider).__name__}"
    listed = asyncio.run(publish(provider))
except ConfigError as failure:
    error = str(failure)
of_plugins = [name for name in sys.modules if name.split(".")[0].endswith(("_registry", "_twin", "_static"))]
print(json.dumps([made, error, listed, Logger.lines, sorted(of_plugins)]))
"""
SCAN = """
import json
from dataclasses import asdict
from drakkar.fleet import plugins
print(json.dumps([asdict(info) for info in plugins.scan()]))
"""


@dataclass
class Outcome:
    made: str | None
    error: str | None
    listed: list[str] | None
    log: list[tuple[str, str, dict[str, Any]]]
    modules: list[str]


@pytest.fixture(scope="module")
def beside_ours(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Core, our two providers, and the packages of `tests/plugin`. Nothing that these tests run needs the
    dependencies of core."""
    environment = make_environment(tmp_path_factory.mktemp("beside-ours") / "env")
    ours = [built[name].wheel for name in ("core", "filesystem", "static")]
    foreign = [
        build(Package(project.parent), tmp_path_factory.mktemp(project.parent.name)).wheel
        for project in sorted(ROOT.glob("tests/plugin/*/pyproject.toml"))
    ]
    environment.install("--no-deps", "--no-index", *ours, *foreign)
    return environment


def run(environment: Environment, *arguments: str) -> Any:
    command: list[str | Path] = [environment.python, "-I", "-c", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def make(environment: Environment, provider: str, **options: Any) -> Outcome:
    made, error, listed, log, modules = run(environment, SCRIPT, provider, json.dumps(options))
    return Outcome(made, error, listed, [(level, event, fields) for level, event, fields in log], modules)


@pytest.mark.parametrize("name", ["harbour", "harbour-function"])
def test_a_class_and_a_function_are_found_by_name_and_used(beside_ours: Environment, name: str) -> None:
    outcome = make(beside_ours, name, name="north")

    assert outcome.made == "harbour_registry.registry.HarbourRegistry"
    assert outcome.listed == ["worker-1"]
    assert outcome.log == []


def test_its_own_complaint_about_the_options_reaches_the_user(beside_ours: Environment) -> None:
    outcome = make(beside_ours, "harbour")

    assert outcome.error == (
        "fleet.registry.provider 'harbour': plugin_options.name must be the name of a harbour"
    )


def test_it_replaces_a_provider_of_ours(beside_ours: Environment) -> None:
    outcome = make(beside_ours, "filesystem")

    assert outcome.made == "harbour_registry.replacement.Replacement"
    assert outcome.log == []


def test_no_package_of_another_name_is_imported(beside_ours: Environment) -> None:
    assert make(beside_ours, "none").modules == []
    assert {name.split(".")[0] for name in make(beside_ours, "harbour", name="x").modules} == {
        "harbour_registry"
    }


def test_of_two_that_register_one_name_the_first_is_used_and_the_other_logged(
    beside_ours: Environment,
) -> None:
    outcome = make(beside_ours, "twin")

    assert outcome.modules == ["alpha_twin"]
    ((level, event, fields),) = outcome.log
    assert (level, event) == ("warning", INVALID)
    assert (fields["provider"], fields["distribution"]) == ("twin", "zulu-twin")
    assert "alpha-twin" in fields["reason"]


@pytest.mark.parametrize(
    ("name", "event", "error"),
    [
        ("raises", LOAD_FAILED, "RuntimeError: this module cannot be imported"),
        ("exits", LOAD_FAILED, "SystemExit: a script that was taken for a module"),
        ("misspelt", LOAD_FAILED, "SyntaxError: "),
        ("absent", LOAD_FAILED, "ModuleNotFoundError: No module named 'faulty_registry.absent'"),
        ("nameless", LOAD_FAILED, "AttributeError: module 'faulty_registry' has no attribute"),
        ("number", INVALID, "faulty_registry:NUMBER is not callable, but int"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_logged_and_stops_the_start(
    beside_ours: Environment, name: str, event: str, error: str
) -> None:
    outcome = make(beside_ours, name)

    assert outcome.error is not None
    assert outcome.error.startswith(
        f"fleet.registry.provider is '{name}', which is installed but cannot be loaded: {error}"
    )
    assert outcome.error.endswith(
        "(providers that exist: absent, exits, filesystem, harbour, harbour-function, misspelt, nameless, "
        "none, number, raises, static, twin)"
    )
    ((level, logged, fields),) = outcome.log
    assert (level, logged, fields["distribution"]) == ("warning", event, "faulty-registry")


def test_ours_takes_the_place_of_a_replacement_that_cannot_be_loaded(beside_ours: Environment) -> None:
    outcome = make(beside_ours, "static", peers=[])

    assert outcome.made == "drakkar_static.registry.StaticRegistry"
    assert [(event, fields["provider"]) for _, event, fields in outcome.log] == [(LOAD_FAILED, "static")]


def test_a_scan_tells_of_all_which_are_chosen_and_why_others_are_not(beside_ours: Environment) -> None:
    infos = run(beside_ours, SCAN)

    assert [(info["name"], info["distribution"], info["chosen"]) for info in infos] == [
        ("absent", "faulty-registry", False),
        ("exits", "faulty-registry", False),
        ("filesystem", "harbour-registry", True),
        ("filesystem", "drakkar-filesystem", False),
        ("harbour", "harbour-registry", True),
        ("harbour-function", "harbour-registry", True),
        ("misspelt", "faulty-registry", False),
        ("nameless", "faulty-registry", False),
        ("none", "drakkar-core", True),
        ("number", "faulty-registry", False),
        ("raises", "faulty-registry", False),
        ("static", "faulty-registry", False),
        ("static", "drakkar-static", True),
        ("twin", "alpha-twin", True),
        ("twin", "zulu-twin", False),
    ]
    assert {info["name"] for info in infos if info["error"] is None} == {
        *("filesystem", "harbour", "harbour-function", "none", "static", "twin"),
    }
    assert {info["version"] for info in infos if info["distribution"] == "harbour-registry"} == {"1.2.3"}

"""Core and one provider, installed from their wheels into an empty environment, make a complete worker."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.building import Built, Environment, make_environment
from support.repository import PACKAGES, Package

STOP_SECONDS = 30
SETTINGS = {
    "redis": {"DK_FLEET__REGISTRY__REDIS__URL": "redis://127.0.0.1:1"},
    "static": {
        "DK_FLEET__REGISTRY__STATIC__PEERS": '[{"name": "worker-2", "url": "http://192.0.2.2:8080/"}]'
    },
}
"""What a worker on a provider needs to be told; a provider that is not here needs nothing."""


@pytest.fixture(scope="module", params=PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest) -> Package:
    chosen: Package = request.param
    return chosen


@pytest.fixture(scope="module")
def alone(package: Package, built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with core and `package` alone, or with core alone."""
    environment = make_environment(tmp_path_factory.mktemp("alone") / "env")
    environment.install(*(built[name].wheel for name in dict.fromkeys(["core", package.name])))
    return environment


def test_it_lists_none_and_that_one_provider(alone: Environment, package: Package) -> None:
    listed = json.loads(
        subprocess.run([alone.drakkar, "providers", "--json"], check=True, capture_output=True).stdout
    )

    assert {row["name"] for row in listed} == {"none", package.name} - {"core"}
    assert [row["error"] for row in listed if row["error"]] == []


def test_it_needs_nothing_that_was_not_installed_along(alone: Environment) -> None:
    subprocess.run([alone.python, "-m", "pip", "check"], check=True)


def test_it_runs_a_worker_until_it_is_told_to_stop(
    alone: Environment, package: Package, tmp_path: Path
) -> None:
    provider = "none" if package.name == "core" else package.name
    with running(alone, tmp_path, provider) as (process, url):
        with urllib.request.urlopen(f"{url}api/v1/workers", timeout=10) as answer:
            rows = json.load(answer)
        with urllib.request.urlopen(f"{url}api/v1/identity", timeout=10) as answer:
            identity = json.load(answer)
        process.send_signal(signal.SIGTERM)

        assert process.wait(STOP_SECONDS) == 0
    (own,) = [row for row in rows if row["is_current"]]
    assert (own["worker_name"], own["online"]) == ("worker-1", True)
    assert identity["registry_provider"] == provider


def test_it_tells_what_to_install_for_another_one(
    alone: Environment, package: Package, tmp_path: Path
) -> None:
    other = "static" if package.name == "filesystem" else "filesystem"
    command: list[str | Path] = [alone.drakkar, "run", "--provider", other]
    result = subprocess.run(command, capture_output=True, text=True, env=environ(tmp_path), timeout=60)

    assert result.returncode == 2
    assert f"drakkar-{other}" in result.stderr
    assert result.stderr.count("\n") == 1


def environ(folder: Path) -> dict[str, str]:
    """The environment of a worker that keeps its files in `folder` and hears of no setting of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DK_", "PYTHON"))}
    return {**kept, "DK_STORAGE__DIR": str(folder / "state"), "DK_SHARED__DIR": str(folder / "shared")}


@contextmanager
def running(alone: Environment, folder: Path, provider: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a worker; gives its process and the address it printed, and kills what is left at the end."""
    command: list[str | Path] = [alone.drakkar, "run", "--worker-name", "worker-1", "--port", "0"]
    command += ["--provider", provider]
    settings = environ(folder) | SETTINGS.get(provider, {})
    with subprocess.Popen(command, cwd=folder, env=settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " runs at http" in line, line
            yield process, line.split()[-1]
        finally:
            process.kill()

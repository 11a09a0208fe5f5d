"""Every check of this repository, as sessions. `nox --list` shows them, `nox -s NAME` runs one.

`./scripts/test` runs those tagged `gate`. What follows `--` goes to pytest: `nox -s core-3.11 -- -k card`.

Packages are found by looking for them: a new folder under `packages/` is tested without a change here. Each
has a session of its own, in an environment with core and that package only, so that none can lean on
another by accident.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import nox

ROOT = Path(__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
EXAMPLES = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("examples/*/pyproject.toml"))
PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(nox.project.load_toml("packages/core/pyproject.toml"))


def find_python(version: str) -> Path | None:
    """Return a Python of `version` that really runs; a version manager's command may exist and not run."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin"))
    for candidate in (folder / f"python{version}" for folder in folders):
        if not candidate.is_file():
            continue
        if subprocess.run([candidate, "-c", ""], check=False, capture_output=True).returncode == 0:
            return candidate
    return None


FOUND = {version: path for version in PYTHONS if (path := find_python(version))}
# At the end of the path nox finds them, and they come before nothing else.
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *{str(path.parent): 0 for path in FOUND.values()}])

COMMANDS = "tests/core/cli"
ON_LOWEST_ONLY = (
    "tests/consul/faults",
    "tests/core/cache/test_convergence.py",
    "tests/core/cache/test_exchange.py",
    "tests/core/cache/test_page.py",
    "tests/core/cache/test_store.py",
    "tests/core/fleet/test_card.py",
    "tests/core/fleet/test_intake.py",
    "tests/core/fleet/test_testkit.py",
    "tests/core/leases/test_model.py",
    "tests/core/leases/test_testkit.py",
    "tests/core/leases/test_trials.py",
    "tests/core/server",
    "tests/core/settings",
    "tests/core/supervisor/test_fairness.py",
    "tests/core/supervisor/test_fleet_property.py",
    "tests/core/telemetry",
    "tests/etcd/faults",
    "tests/filesystem/leases",
    "tests/filesystem/test_any_files.py",
    "tests/filesystem/test_hang.py",
    "tests/redis/faults",
)
"""Tests that start hundreds of processes, wait for real leases, simulate hours, or are of parts that are the
same on every Python. The gate runs them on the lowest alone, to stay below twenty minutes on two processors;
`--long` runs them on every one, and everything on the Pythons in between."""

nox.options.default_venv_backend = os.environ.get("NOX_DEFAULT_VENV_BACKEND", "uv|virtualenv")
nox.options.download_python = "never"
nox.options.reuse_venv = "yes"
nox.options.allow_parallel = True  # `nox -j 4`: side by side, but for those that need the machine alone
GATED = list(FOUND)
if "--long" not in sys.argv:
    del GATED[1:-1]  # what holds on the lowest and on the highest Python holds between them

nox.options.sessions = [  # the longest first
    *("e2e", f"core-{GATED[0]}", f"commands-{GATED[0]}", "browser"),
    *(f"core-{version}" for version in GATED[1:]),
    *(f"{name}-{version}" for version in GATED for name in PACKAGES if name != "core"),
    *("layout", "lint", "types", "docs", "build"),
]


def source_of(package: str) -> list[str]:
    """What to install for a package: its folder, editable; in a release the wheel that was built of it."""
    built = os.environ.get("DRAKKAR_WHEELS")
    wheels = sorted(Path(built).glob(f"drakkar_{package}-*.whl")) if built else []
    return [str(wheels[-1])] if wheels else ["-e", f"packages/{package}"]


def install(
    session: nox.Session, packages: Iterable[str], *groups: str, examples: Iterable[str] = ()
) -> None:
    """Install packages, examples and dependency groups of the root project.

    An environment that is used again is left alone until a pyproject.toml changes.
    """
    wanted = [argument for package in packages for argument in source_of(package)]
    wanted += [argument for folder in examples for argument in ("-e", folder)]
    wanted += nox.project.dependency_groups(PROJECT, *groups)
    state = hashlib.sha256(repr(wanted).encode())
    for path in sorted([*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("examples/*/pyproject.toml")]):
        state.update(path.read_bytes())
    stamp = Path(session.virtualenv.location) / "installed"
    if not stamp.exists() or stamp.read_text() != state.hexdigest():
        session.install("--no-compile", *wanted)  # most of what is installed is never imported
        stamp.write_text(state.hexdigest())


def run_tests(session: nox.Session, folder: str, *ignored: str) -> None:
    """Run the tests of `folder`, or those that the caller named, and fail if none was executed."""
    results = Path(os.environ.get("DRAKKAR_TEST_RESULTS", session.virtualenv.location))
    junit = results / f"{session.name}.xml"
    named = any(Path(argument.partition("::")[0]).exists() for argument in session.posargs)
    # A folder of its own: pytest sweeps the one that runs share, and sessions run side by side.
    temporary = tempfile.mkdtemp(prefix="drakkar-")
    options = [f"--junit-xml={junit}", f"--basetemp={temporary}/tests"]
    session.run("pytest", *options, *([] if named else [folder, *ignored]), *session.posargs)
    shutil.rmtree(temporary, ignore_errors=True)
    suite = ET.parse(junit).find("testsuite")
    if suite is None or int(suite.attrib["tests"]) == int(suite.attrib["skipped"]):
        session.error("no test was executed")


def declare_package(name: str) -> None:
    def package(session: nox.Session) -> None:
        install(session, dict.fromkeys(["core", name]), "test")
        quick = session.python != PYTHONS[0] and "--long" not in session.posargs
        ignored = [*(ON_LOWEST_ONLY if quick else ()), COMMANDS]
        run_tests(session, f"tests/{name}", *(f"--ignore={folder}" for folder in ignored))

    package.__doc__ = f"Test packages/{name} beside core alone."
    nox.session(name=name, python=PYTHONS, tags=["gate"])(package)


for _name in PACKAGES:
    declare_package(_name)


@nox.session(python=PYTHONS, tags=["gate"])
def commands(session: nox.Session) -> None:
    """Test the command line of packages/core, which takes as long as all else of it."""
    install(session, ["core"], "test")
    run_tests(session, COMMANDS)


@nox.session(tags=["gate"])
def e2e(session: nox.Session) -> None:
    """Test fleets of real processes, with every package and every example installed."""
    install(session, PACKAGES, "test", examples=EXAMPLES)
    run_tests(session, "tests/e2e")


@nox.session(tags=["gate"])
def browser(session: nox.Session) -> None:
    """Test the pages in a real browser, with real workers behind them."""
    install(session, PACKAGES, "test", "browser")
    run_tests(session, "tests/browser")


@nox.session(default=False)
def screenshots(session: nox.Session) -> None:
    """Take pictures of the pages into a folder, `screenshots` or the one that is named, to be looked at."""
    install(session, PACKAGES, "test", "browser")
    session.run("python", "tests/browser/screenshots.py", *(session.posargs or ["screenshots"]))


@nox.session(tags=["gate"])
def layout(session: nox.Session) -> None:
    """Check the shape of the repository: import rules, package folders, workflows."""
    install(session, PACKAGES, "test", "nox")
    run_tests(session, "tests/layout")


@nox.session(tags=["gate"])
def lint(session: nox.Session) -> None:
    """Check style and formatting, and the workflows against their schema."""
    install(session, [], "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    workflows = sorted(str(path) for path in Path(".github/workflows").glob("*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


@nox.session(tags=["gate"])
def types(session: nox.Session) -> None:
    """Check types, strictly, of everything."""
    install(session, PACKAGES, "test", "browser", "types", examples=EXAMPLES)
    sources = [*(f"packages/{name}/src" for name in PACKAGES), *(f"{folder}/src" for folder in EXAMPLES)]
    session.run("mypy", *sources)
    folders = [
        name for name in ("tests", "scripts", "benchmarks", "examples") if any(Path(name).rglob("*.py"))
    ]
    # Without the installed examples, which would be met again under a second name.
    options = ("--explicit-package-bases", "--exclude", "^examples/.*/src/")
    session.run("mypy", *options, "noxfile.py", *folders)


@nox.session(tags=["gate"])
def docs(session: nox.Session) -> None:
    """Check links and examples of the documentation, and its tables against the code."""
    install(session, PACKAGES, "test")
    run_tests(session, "tests/docs")


@nox.session(tags=["gate"])
def build(session: nox.Session) -> None:
    """Build every package, look inside, and run a worker from the wheels of core and one provider alone."""
    install(session, [], "test", "build")
    run_tests(session, "tests/build")


@nox.session(default=False, allow_parallel=False)
def bench(session: nox.Session) -> None:
    """Measure speed: print tables and write JSON."""
    install(session, PACKAGES, "test", "bench")
    for script in sorted(Path("benchmarks").glob("*.py")):
        session.run("python", str(script), *session.posargs)


@nox.session(default=False, python=PYTHONS[0])
def minimums(session: nox.Session) -> None:
    """Test every package with the lowest versions of its dependencies that it allows."""
    projects = [nox.project.load_toml(f"packages/{name}/pyproject.toml")["project"] for name in PACKAGES]
    lowest = {need.replace(">=", "==") for project in projects for need in project["dependencies"]}
    install(session, PACKAGES, "test")
    session.install(*(need for need in lowest if not need.startswith("drakkar-")))
    for name in PACKAGES:
        run_tests(session, f"tests/{name}")

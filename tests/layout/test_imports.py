"""Who imports whom. The direction is in ARCHITECTURE.md; these are its rules, read from the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions

import pytest
from support.repository import CORE, PACKAGES, PROVIDERS, Module, Package

CONTRACTS = ("drakkar.fleet.card", "drakkar.fleet.provider")
BASICS = (
    *("drakkar.calls", "drakkar.clock", "drakkar.errors", "drakkar.masking", "drakkar.telemetry"),
    *CONTRACTS,
)
COMPOSITION = (
    *("drakkar.worker", "drakkar.membership", "drakkar.leadership", "drakkar.caching", "drakkar.cache"),
    *("drakkar.fleet", "drakkar.leases", "drakkar.server", "drakkar.settings", "drakkar.supervisor", *BASICS),
)

# Each part of core and what it may import of core; the longest name that fits a module counts. Settings are
# known to the worker and the commands alone: every other part gets plain values.
PLACES: dict[str, tuple[str, ...]] = {
    "drakkar": (),
    "drakkar.masking": (),
    "drakkar.errors": ("drakkar.masking",),
    "drakkar.clock": (),
    "drakkar.calls": ("drakkar.clock", "drakkar.errors"),
    **dict.fromkeys(CONTRACTS, ()),
    "drakkar.fleet.liveness": (),
    "drakkar.fleet.testkit": ("drakkar.fleet.testkit", *CONTRACTS),
    "drakkar.fleet.none": ("drakkar.leases.memory", *BASICS),
    "drakkar.fleet": ("drakkar.fleet", *BASICS),
    "drakkar.leases.backend": CONTRACTS,
    "drakkar.leases": ("drakkar.leases", "drakkar.fleet.plugins", *BASICS),
    "drakkar.supervisor.worker": CONTRACTS,
    "drakkar.supervisor": ("drakkar.supervisor", "drakkar.leases", *BASICS),
    "drakkar.cache": (
        *(
            "drakkar.cache",
            "drakkar.fleet.identity",
            "drakkar.fleet.liveness",
            "drakkar.fleet.service",
            *BASICS,
        ),
    ),
    "drakkar.testing": ("drakkar.fleet.none", "drakkar.leases.memory", *BASICS),
    "drakkar.telemetry": (
        *("drakkar.telemetry", "drakkar.masking", "drakkar.fleet.liveness", "drakkar.fleet.provider"),
    ),
    "drakkar.settings": (
        "drakkar.settings",
        "drakkar.clock",
        "drakkar.errors",
        "drakkar.fleet.plugins",
        "drakkar.leases.deadline",
    ),
    "drakkar.server": (
        *("drakkar.server", "drakkar.fleet.identity", "drakkar.fleet.liveness", "drakkar.fleet.service"),
        *(
            "drakkar.leases.backend",
            "drakkar.supervisor.surroundings",
            "drakkar.supervisor.history",
            "drakkar.cache.changes",
        ),
        *("drakkar.clock", "drakkar.errors", "drakkar.masking", "drakkar.telemetry"),
    ),
    **dict.fromkeys(
        ("drakkar.worker", "drakkar.membership", "drakkar.leadership", "drakkar.caching"), COMPOSITION
    ),
    "drakkar.cli": ("drakkar",),
}


def under(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def place_of(module: Module) -> str:
    """The entry of `PLACES` for a module; the package `drakkar` itself is a place for `__init__.py` alone."""
    fitting = [
        part for part in PLACES if under(module.name, part) and (part != "drakkar" or module.name == part)
    ]
    return max(fitting, key=len, default="")


def imported_modules(module: Module, known: set[str]) -> Iterator[str]:
    """The modules of ours that `module` imports: `a.b` for `from a.b import name`."""
    for name in module.imports():
        found = name
        while found and found not in known:
            found = found.rpartition(".")[0]
        if found:
            yield found


CORE_MODULES = {module.name for module in CORE.modules()}


def test_every_part_of_core_has_a_place() -> None:
    assert [module.name for module in CORE.modules() if not place_of(module)] == []


def test_every_part_of_core_imports_only_what_its_place_allows() -> None:
    wrong = [
        f"{module.name} imports {name}"
        for module in CORE.modules()
        for name in imported_modules(module, CORE_MODULES)
        if not any(under(name, allowed) for allowed in PLACES[place_of(module)])
    ]

    assert wrong == []


def test_core_imports_no_provider_package() -> None:
    others = {package.import_name for package in PROVIDERS}
    wrong = [
        f"{module.name} imports {name}"
        for module in CORE.modules()
        for name in module.imports()
        if name.split(".")[0] in others
    ]

    assert wrong == []


@pytest.mark.parametrize("package", PROVIDERS, ids=lambda package: package.name)
def test_a_provider_package_imports_the_contracts_of_core_alone(package: Package) -> None:
    modules = {module.name: module for module in package.modules()}
    registry_half, waiting = set(), [f"{package.import_name}.registry"]
    while waiting:
        if (name := waiting.pop()) not in registry_half:
            registry_half.add(name)
            waiting += (other for other in imported_modules(modules[name], set(modules)) if "." in other)
    wrong = [
        f"{module.name} imports {name}"
        for module in modules.values()
        for name in module.imports()
        if under(name, "drakkar") and not any(under(name, contract) for contract in CONTRACTS)
        if module.name in registry_half or not under(name, "drakkar.leases")
    ]

    assert wrong == []


@pytest.mark.parametrize("package", PROVIDERS, ids=lambda package: package.name)
def test_importing_a_provider_loads_the_two_contracts_of_core_alone(package: Package) -> None:
    script = (
        f"import sys, {package.import_name}, {package.import_name}.registry\n"
        "print(*(name for name in sys.modules if name.partition('.')[0] == 'drakkar'))"
    )
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)

    assert set(result.stdout.split()) <= {"drakkar", "drakkar.fleet", *CONTRACTS}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_imports_itself_by_a_detour(package: Package) -> None:
    modules = list(package.modules())
    known = {module.name for module in modules}
    graph = {module.name: set(imported_modules(module, known)) - {module.name} for module in modules}

    TopologicalSorter(graph).prepare()  # raises CycleError, which shows the way round


# What a declared package is made of and hands to its users.
SHOWN_BY = {"aiohttp": "yarl", "fastapi": "starlette", "pydantic": "pydantic-core"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_imports_only_what_it_declares(package: Package) -> None:
    declared = {normal(need) for need in package.project["dependencies"]} | {package.distribution}
    declared |= {SHOWN_BY[name] for name in declared & SHOWN_BY.keys()}
    # python-consul2 says of itself that it holds `consul/base` and the like, and no `consul`.
    owners = {name.partition("/")[0]: owner for name, owner in packages_distributions().items()}
    owners |= {each.import_name: [each.distribution] for each in PACKAGES}
    wrong = [
        f"{module.name} imports {name}"
        for module in package.modules()
        for name in module.imports()
        if (top := name.split(".")[0]) not in sys.stdlib_module_names
        and not declared.intersection(map(normal, owners.get(top, [])))
    ]

    assert wrong == []


def normal(requirement: str) -> str:
    """The name of a distribution, normalized, out of a requirement."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


# asyncio.wait_for can lose a cancellation on Python 3.11; the other two wait for the loop's default executor,
# which one hung call of anybody fills.
FORBIDDEN = {"wait_for", "to_thread"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_uses_what_loses_a_cancellation_or_the_default_executor(package: Package) -> None:
    wrong = [
        f"{module.path.name}:{node.lineno}"
        for module in package.modules()
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and node.attr in FORBIDDEN and is_name(node.value, "asyncio"))
        or (isinstance(node, ast.ImportFrom) and node.module == "asyncio" and FORBIDDEN & names(node))
        or (isinstance(node, ast.Call) and uses_default_executor(node))
    ]

    assert wrong == []


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def names(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names}


def uses_default_executor(call: ast.Call) -> bool:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run_in_executor"):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "executor")]
    return not given or (isinstance(given[0], ast.Constant) and given[0].value is None)

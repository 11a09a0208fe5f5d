"""Every package has the same shape, and says the truth about itself."""

import ast
import importlib.metadata
import re
import tomllib
from typing import Any

import pytest
from drakkar.fleet.plugins import PUBLISHED_PROVIDERS
from support.repository import CORE, GROUP, PACKAGES, PROVIDERS, ROOT, Module, Package

every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
every_provider = pytest.mark.parametrize("package", PROVIDERS, ids=lambda package: package.name)

MAX_LINES = 400
LINES_WITHOUT_A_REASON = 250


@every_package
def test_a_package_has_its_files(package: Package) -> None:
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
        assert (package.folder / name).is_file(), name
    assert (package.source / "py.typed").read_text() == ""
    assert (package.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert any((ROOT / "tests" / package.name).rglob("test_*.py"))


@every_provider
def test_a_provider_package_has_the_shape_of_the_others(package: Package) -> None:
    assert {"__init__.py", "settings.py", "registry.py"} <= {path.name for path in package.source.iterdir()}


@every_package
def test_a_readme_says_what_the_package_is(package: Package) -> None:
    heading, *text = (package.folder / "README.md").read_text().splitlines()

    assert heading == f"# {package.distribution}"
    assert len(text) > 5


@every_package
def test_the_changelog_has_an_entry_for_the_version(package: Package) -> None:
    version = package.project["version"]
    headings = re.findall(r"^## (\S+)", (package.folder / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version)
    assert headings[:1] == [version]


@every_package
def test_a_pyproject_differs_from_core_only_where_it_must(package: Package) -> None:
    def common(project: dict[str, Any]) -> dict[str, Any]:
        own = ("name", "version", "description", "keywords", "dependencies", "scripts", "entry-points")
        return {key: value for key, value in project.items() if key not in own}

    assert package.project["name"] == package.distribution
    assert common(package.project) == common(CORE.project)
    assert package.pyproject["build-system"] == CORE.pyproject["build-system"]


@every_provider
def test_a_provider_package_needs_the_core_that_lies_beside_it(package: Package) -> None:
    major, minor, *_ = map(int, CORE.project["version"].split("."))

    assert f"drakkar-core>={major}.{minor},<{major}.{minor + 1}" in package.project["dependencies"]


@every_provider
def test_a_provider_is_published_and_registered_under_the_name_of_its_folder(package: Package) -> None:
    assert package.name in PUBLISHED_PROVIDERS
    assert list(package.project["entry-points"][GROUP]) == [package.name]


@every_package
def test_an_entry_point_loads_by_its_registered_name(package: Package) -> None:
    registered = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    for name, target in package.project["entry-points"][GROUP].items():
        assert registered[name].value == target
        assert callable(registered[name].load())


@every_package
def test_a_module_is_short(package: Package) -> None:
    explained = (ROOT / "ARCHITECTURE.md").read_text()
    for module in package.modules():
        lines = len(module.path.read_text().splitlines())
        assert lines <= MAX_LINES, module.name
        assert lines <= LINES_WITHOUT_A_REASON or f"`{module.name}`" in explained, module.name


@every_package
def test_an_init_module_holds_no_code_of_its_own(package: Package) -> None:
    for module in package.modules():
        if module.is_package:
            assert [ast.unparse(node) for node in module.tree.body if not re_exports(node, module)] == []


def re_exports(node: ast.stmt, module: Module) -> bool:
    """Whether a statement is a docstring, an import, or gives a name to what was imported.

    The factory object of a provider package stands in its `__init__.py`, because the registered name must
    be importable without either half of the package.
    """
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
        return True
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    is_provider = module.name.startswith("drakkar_") and "." not in module.name
    return is_provider and isinstance(node, ast.ClassDef | ast.FunctionDef)


@every_package
def test_a_module_says_what_it_is_for(package: Package) -> None:
    modules = [module for module in package.modules() if module.tree.body]

    assert [module.name for module in modules if not ast.get_docstring(module.tree)] == []


def test_the_lowest_python_is_the_same_everywhere() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    lowest = CORE.pythons[0]

    assert CORE.project["requires-python"] == f">={lowest}"
    assert tools["mypy"]["python_version"] == lowest
    assert tools["ruff"]["target-version"] == "py" + lowest.replace(".", "")

"""What is inside the archives that a release publishes."""

import tarfile
import zipfile
from email.parser import Parser

import pytest
from support.building import Built
from support.repository import PACKAGES, Package

every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)


@every_package
def test_a_wheel_holds_the_package_and_nothing_else(package: Package, built: dict[str, Built]) -> None:
    with zipfile.ZipFile(built[package.name].wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    ours = {
        str(path.relative_to(package.folder / "src"))
        for path in package.source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == ours
    assert f"{package.import_name}/py.typed" in names


@every_package
def test_a_wheel_tells_what_it_is(package: Package, built: dict[str, Built]) -> None:
    with zipfile.ZipFile(built[package.name].wheel) as wheel:
        info = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        licence = wheel.read(f"{info}/licenses/LICENSE")

    assert metadata["Name"] == package.distribution
    assert metadata["Version"] == package.project["version"]
    assert metadata["Requires-Python"] == package.project["requires-python"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_payload() == (package.folder / "README.md").read_text()
    assert licence == (package.folder / "LICENSE").read_bytes()


@every_package
def test_a_source_archive_holds_what_a_wheel_is_built_from(package: Package, built: dict[str, Built]) -> None:
    with tarfile.open(built[package.name].sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    outside = {name for name in names if not name.startswith("src/")}

    assert outside - {".gitignore"} == {"pyproject.toml", "PKG-INFO", "README.md", "CHANGELOG.md", "LICENSE"}
    assert f"src/{package.import_name}/py.typed" in names

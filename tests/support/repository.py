"""Where things are in this repository, found by looking."""

import ast
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GROUP = "drakkar.registry_providers"
_HIDDEN_BUT_OURS = {".ci", ".github", ".gitignore"}
_MADE = {"__pycache__", "dist"}


@dataclass(frozen=True)
class Package:
    """One folder under `packages/`."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def distribution(self) -> str:
        return f"drakkar-{self.name}"

    @property
    def import_name(self) -> str:
        return "drakkar" if self.name == "core" else f"drakkar_{self.name}"

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.import_name

    @cached_property
    def project(self) -> dict[str, Any]:
        """The `[project]` table of its pyproject.toml."""
        table: dict[str, Any] = self.pyproject["project"]
        return table

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text())

    @property
    def pythons(self) -> list[str]:
        """The versions of Python that it says it supports."""
        return [text.split()[-1] for text in self.project["classifiers"] if ":: Python :: 3." in text]

    def modules(self) -> "Iterator[Module]":
        for path in sorted(self.source.rglob("*.py")):
            parts = path.relative_to(self.folder / "src").with_suffix("").parts
            yield Module(".".join(part for part in parts if part != "__init__"), path)


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))

    def imports(self) -> Iterator[str]:
        """Every import, wherever it stands: `a.b` for `import a.b`, `a.b.c` for `from a.b import c`.

        Left out are those for the type checker alone, which load nothing.
        """
        unloaded = {
            inner
            for node in ast.walk(self.tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for node in ast.walk(self.tree):
            if node in unloaded:
                continue
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                here = self.name.split(".") + (["__init__"] if self.is_package else [])
                start = [*here[: -node.level]] if node.level else []
                source = ".".join([*start, *([node.module] if node.module else [])])
                yield from (f"{source}.{alias.name}" for alias in node.names)


PACKAGES = [Package(path.parent) for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
CORE = next(package for package in PACKAGES if package.name == "core")
PROVIDERS = [package for package in PACKAGES if package.name != "core"]


def text_files(*suffixes: str) -> Iterator[Path]:
    """Our own text files with one of the suffixes, or with any: what git would track, found without git."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(filter(_is_ours, folders))
        for path in (Path(folder) / name for name in sorted(files) if _is_ours(name)):
            if not suffixes or path.suffix in suffixes:
                yield path


def _is_ours(name: str) -> bool:
    return name in _HIDDEN_BUT_OURS or not (name.startswith(".") or name in _MADE)

"""What a tag must match before its package is built for release."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repository import ROOT

check: Callable[..., str] = runpy.run_path(str(ROOT / "scripts" / "check_release.py"))["check"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "packages" / "core"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "drakkar-core"\nversion = "1.2.0"\n')
    (folder / "CHANGELOG.md").write_text(
        "# Changes\n\n## 1.2.0 (2026-01-31)\n\n- Added: cards.\n\n## 1.1.0 (2026-01-01)\n"
    )
    return tmp_path


def test_it_names_the_folder_of_a_package_that_is_ready(root: Path) -> None:
    assert check("drakkar-core-v1.2.0", root) == "core"


@pytest.mark.parametrize(
    ("tag", "told"),
    [
        ("core-v1.2.0", "a release tag is drakkar-<package>-v<version>"),
        ("drakkar-core-1.2.0", "a release tag is drakkar-<package>-v<version>"),
        ("drakkar-../core-v1.2.0", "a release tag is drakkar-<package>-v<version>"),
        ("drakkar-redis-v1.2.0", "there is no folder packages/redis"),
        ("drakkar-core-v1.2.1", "has version 1.2.0"),
    ],
)
def test_it_refuses_a_tag_that_names_no_release(root: Path, tag: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check(tag, root)


@pytest.mark.parametrize(
    ("changelog", "told"),
    [
        ("# Changes\n", r"must open with: ## 1\.2\.0 \(YYYY-MM-DD\)"),
        ("## 1.2.0 (unreleased)\n\n- Added: cards.\n", "must open with"),
        ("## 1.3.0 (2026-02-01)\n\n- More.\n\n## 1.2.0 (2026-01-31)\n\n- Added: cards.\n", "must open with"),
        ("## 1.2.0 (2026-01-31)\n\n## 1.1.0 (2026-01-01)\n\n- Added: cards.\n", "is empty"),
    ],
)
def test_it_refuses_a_version_without_a_changelog_entry(root: Path, changelog: str, told: str) -> None:
    (root / "packages" / "core" / "CHANGELOG.md").write_text(changelog)

    with pytest.raises(ValueError, match=told):
        check("drakkar-core-v1.2.0", root)

"""Check that a tag may be released, and print its package: `check_release.py drakkar-core-v1.2.0`.

The tag names a package and its version; the version stands in the package's pyproject.toml, and its
changelog opens with an entry for it that has a date and says something. Needs the standard library alone.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(tag: str, root: Path = ROOT) -> str:
    """Return the name of the package's folder.

    Raises `ValueError` with one line for the first rule that does not hold.
    """
    match = re.fullmatch(r"drakkar-([a-z0-9]+)-v(\S+)", tag)
    if match is None:
        raise ValueError(f"{tag}: a release tag is drakkar-<package>-v<version>")
    package, version = match.groups()
    folder = root / "packages" / package
    if not (folder / "pyproject.toml").is_file():
        raise ValueError(f"{tag}: there is no folder packages/{package}")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    if project["version"] != version:
        raise ValueError(f"{tag}: packages/{package}/pyproject.toml has version {project['version']}")
    entries = re.split(r"^## ", (folder / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    heading, _, text = entries[0].partition("\n") if entries else ("", "", "")
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d{{2}}-\d{{2}}\)", heading.strip()):
        raise ValueError(f"{tag}: packages/{package}/CHANGELOG.md must open with: ## {version} (YYYY-MM-DD)")
    if not text.strip():
        raise ValueError(f"{tag}: the entry of {version} in packages/{package}/CHANGELOG.md is empty")
    return package


if __name__ == "__main__":
    try:
        sys.stdout.write(check(sys.argv[1]) + "\n")
    except ValueError as error:
        sys.exit(str(error))

"""Building packages, and environments that hold nothing but what was built."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.repository import Package


@dataclass(frozen=True, slots=True)
class Built:
    wheel: Path
    sdist: Path


@dataclass(frozen=True, slots=True)
class Environment:
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def drakkar(self) -> Path:
        return self.folder / "bin" / "drakkar"

    def install(self, *arguments: str | Path) -> None:
        subprocess.run([self.python, "-m", "pip", "install", "-qq", *arguments], check=True)


def build(package: Package, folder: Path) -> Built:
    """Build the source archive of `package` into `folder`, and from it the wheel."""
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation"]
    command += ["--outdir", folder, package.folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def make_environment(folder: Path) -> Environment:
    """Make an empty environment that sees nothing of the one that runs the tests."""
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", "--no-periodic-update", folder], check=True)
    return Environment(folder)

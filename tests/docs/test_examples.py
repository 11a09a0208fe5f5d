"""What a page shows can be used as it stands.

A Python block that ends by itself is run when the line above it is `<!-- runs -->`; the others are compiled.
"""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from drakkar.cli._parser import parse
from drakkar.settings import Settings, load_settings
from support.markdown import PAGES, Block
from support.repository import ROOT

BLOCKS = [block for page in PAGES for block in page.blocks()]
SHELL = ("sh", "bash", "shell", "console")


def blocks(*languages: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [each for each in BLOCKS if each.info in languages], ids=str)


def test_every_block_says_what_language_it_is_in() -> None:
    known = {"python", "yaml", "toml", "json", "text", "promql", "hcl", *SHELL}

    assert [str(block) for block in BLOCKS if block.info not in known] == []


@blocks("json")
def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


@blocks("toml")
def test_toml_can_be_read(block: Block) -> None:
    tomllib.loads(block.text)


@blocks("yaml")
def test_yaml_with_settings_is_accepted_by_a_worker(block: Block, tmp_path: Path) -> None:
    content = yaml.safe_load(block.text)
    if isinstance(content, dict) and content.keys() & Settings.model_fields.keys():
        file = tmp_path / "drakkar.yaml"
        file.write_text(block.text)
        load_settings(file, environ={})


@blocks("python")
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.mark == "runs"], ids=str)
def test_python_that_is_said_to_run_does(block: Block, tmp_path: Path) -> None:
    environ = {**os.environ, "DK_STORAGE__DIR": str(tmp_path / "state"), "DK_SHARED__DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", block.text]

    subprocess.run(command, check=True, cwd=tmp_path, env=environ, timeout=60)


@blocks(*SHELL)
def test_a_command_exists_as_it_is_shown(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, check=True, text=True)
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        words = words[next((at for at, word in enumerate(words) if "=" not in word), 0) :]
        if words and words[0].startswith("./"):
            assert os.access(ROOT / words[0], os.X_OK), words[0]
        if words and words[0] == "drakkar" and "-h" not in words and "--help" not in words:
            parse(words[1:])

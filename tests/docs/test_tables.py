"""The names in the tables of the documentation are those in the code."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import yaml
from drakkar.settings import Settings
from drakkar.telemetry.metrics import RegistryMetrics
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, SecretStr
from support.markdown import PAGES, Page, code
from support.repository import PACKAGES, ROOT

REGISTRY = Page(ROOT / "docs" / "registry.md")
CONFIGURATION = Page(ROOT / "docs" / "configuration.md")
LEVELS = ("debug", "info", "warning", "error")
EVENT = re.compile(r"fleet_[a-z]+_[a-z_]+")


def test_the_table_of_metrics_is_complete() -> None:
    registry = CollectorRegistry()
    RegistryMetrics(registry).watch(lambda _state: 0, lambda: 0.0)
    real = set()
    for metric in registry.collect():
        suffix = "_total" if metric.type == "counter" else ""
        labels = frozenset(name for sample in metric.samples for name in sample.labels if name != "le")
        real.add((metric.name + suffix, metric.type, labels))
    rows = REGISTRY.table("Metric", "Type", "Labels")

    assert {(code(row["Metric"])[0], row["Type"], frozenset(code(row["Labels"])[:1])) for row in rows} == real


def test_the_table_of_log_events_is_complete() -> None:
    assert sorted(name for name, _ in documented_events()) == sorted(set(events()))


def test_the_table_of_log_events_has_the_levels_of_the_code() -> None:
    levels = dict(documented_events())
    wrong = {name: level for name, level in levels_in_code() if levels.get(name) != level}

    assert wrong == {}


def test_the_table_of_variables_is_what_the_models_say() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "configuration_table.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_table_of_settings_is_complete() -> None:
    documented = [name for row in CONFIGURATION.table("Key", "Default") for name in code(row["Key"])]

    assert sorted(documented) == sorted(key for key, _ in settings(Settings))


def test_the_table_of_settings_has_the_defaults_of_the_code() -> None:
    defaults = dict(settings(Settings))
    wrong = {}
    for row in CONFIGURATION.table("Key", "Default"):
        key, *_ = code(row["Key"])
        if row["Default"].startswith("`") and yaml.safe_load(code(row["Default"])[0]) != defaults[key]:
            wrong[key] = row["Default"]

    assert wrong == {}


def documented_events() -> Iterator[tuple[str, str]]:
    """Every event and its level, from all pages: a package has its own events on its own page."""
    for page in PAGES:
        for rows in page.tables():
            if rows and {"Event", "Level"} <= rows[0].keys():
                yield from ((name, row["Level"]) for row in rows for name in code(row["Event"]))


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that can be set, with its default as it would be written in a file."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, BaseModel):
            yield from settings(type(default), f"{prefix}{name}.")
        elif isinstance(default, SecretStr):
            yield prefix + name, default.get_secret_value()
        else:
            yield prefix + name, list(default) if isinstance(default, tuple) else default


def nodes() -> Iterator[ast.AST]:
    """All of the source of all packages."""
    for package in PACKAGES:
        for module in package.modules():
            yield from ast.walk(module.tree)


def event_of(node: ast.AST) -> str | None:
    """The event name that a node is; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and EVENT.fullmatch(node.value):
        return node.value
    return None


def events() -> Iterator[str]:
    """Every event name that stands in the source."""
    yield from filter(None, map(event_of, nodes()))


def levels_in_code() -> Iterator[tuple[str, str]]:
    """The event and the level of every logging call that names its event on the spot."""
    for node in nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            event = event_of(node.args[0])
            if event and node.func.attr in LEVELS:
                yield event, node.func.attr

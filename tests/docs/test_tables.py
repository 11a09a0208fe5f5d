"""The names in the tables of the documentation are those in the code."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from drakkar.settings import Settings
from pydantic import BaseModel, SecretStr
from support.markdown import PAGES, Page, code
from support.repository import PACKAGES, ROOT, Module, Package

CONFIGURATION = Page(ROOT / "docs" / "configuration.md")
LEVELS = ("debug", "info", "warning", "error")
EVENT = re.compile(r"(fleet|lease|worker|fanout|supervisor)(_[a-z]+)+")
METRICS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Summary": "summary"}

every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)


@dataclass(frozen=True)
class Event:
    """One event as a module logs it."""

    name: str
    levels: tuple[str, ...]
    """Its level; where the module chooses its event first, the levels of all such calls in it."""

    fields: frozenset[str]
    """Those that are certain."""


def test_the_tables_of_metrics_are_complete() -> None:
    documented = [
        (code(row["Metric"])[0], row["Type"], tuple(code(re.sub(r"\(.*?\)", "", row["Labels"]))))
        for row in documented_rows("Metric", "Type", "Labels")
    ]

    assert sorted(documented) == sorted(metrics())


@every_package
def test_every_log_event_is_in_a_table_with_its_level_and_fields(package: Package) -> None:
    documented = [
        (name, row["Level"], {*code(row["Fields"])})
        for row in documented_rows("Event", "Level", "Fields")
        for name in code(row["Event"])
    ]
    missing = [
        event
        for event in events(package)
        if not any(
            name == event.name and level in event.levels and event.fields <= fields
            for name, level, fields in documented
        )
    ]

    assert missing == []


def test_the_tables_of_log_events_have_no_others() -> None:
    known = {event.name for package in PACKAGES for event in events(package)}
    documented = {name for row in documented_rows("Event", "Level") for name in code(row["Event"])}

    assert documented - known == set()


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


def documented_rows(*columns: str) -> Iterator[dict[str, str]]:
    """The rows of all tables that have these columns, on all pages: a package has its own on its own page."""
    for page in PAGES:
        for rows in page.tables():
            if rows and {*columns} <= rows[0].keys():
                yield from rows


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


def metrics() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of every metric that is made anywhere."""
    for package in PACKAGES:
        for module in package.modules():
            for node in ast.walk(module.tree):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                    continue
                kind, name = METRICS.get(node.func.id), text_of(node.args[0])
                if kind and name:
                    labels = node.args[2].elts if node.args[2:] and isinstance(node.args[2], ast.List) else ()
                    yield (
                        name + ("_total" if kind == "counter" else ""),
                        kind,
                        tuple(text for label in labels if (text := text_of(label))),
                    )


def events(package: Package) -> Iterator[Event]:
    for module in package.modules():
        yield from events_of(module)


def events_of(module: Module) -> Iterator[Event]:
    """What stands in a logging call; and where a call has its event from elsewhere, whatever else in the
    module looks like one."""
    calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call) and is_logging(node)]
    named: set[str] = set()
    for call in calls:
        if name := text_of(call.args[0]):
            assert isinstance(call.func, ast.Attribute)
            fields = {keyword.arg for keyword in call.keywords if keyword.arg}
            yield Event(name, (call.func.attr,), frozenset(fields - {"exc_info"}))
            named.add(name)
    chosen = [call for call in calls if not text_of(call.args[0])]
    levels = tuple(call.func.attr for call in chosen if isinstance(call.func, ast.Attribute))
    if levels:
        texts = {text for node in ast.walk(module.tree) if (text := text_of(node))}
        for text in sorted(texts - named):
            if EVENT.fullmatch(text):
                yield Event(text, levels, frozenset())


def is_logging(call: ast.Call) -> bool:
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr in LEVELS
        and ast.unparse(func.value).endswith("logger")
        and bool(call.args)
    )


def text_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

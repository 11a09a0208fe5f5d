"""Files that are no settings files, and what YAML is read as."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings
from drakkar.settings._yaml import MAX_FILE_BYTES, read_yaml


def refusal_of(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ={})
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    "text", ["", "\n", "# only a comment\n", "---\n", "{}", "null", "\ufeff", "\ufeffui:\n"]
)
def test_a_file_may_be_empty(text: str, load: Callable[..., Settings]) -> None:
    assert load(text) == Settings()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "missing.yaml").startswith(
        f"{tmp_path}/missing.yaml: there is no such file;"
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal_of(tmp_path).startswith(f"{tmp_path}: cannot be read: Is a directory")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret.yaml"
    file.write_text("")
    file.chmod(0)
    if os.access(file, os.R_OK):  # the superuser reads anything
        monkeypatch.setattr(Path, "open", refuse_to_open)

    assert refusal_of(file).startswith(f"{file}: cannot be read: Permission denied")


def refuse_to_open(path: Path, *_: Any) -> None:
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "n" * 300, "\udcff"])
def test_a_name_that_no_file_has_is_one_line(name: str, tmp_path: Path) -> None:
    assert "; give " in refusal_of(tmp_path / name)


@pytest.mark.parametrize("size", [MAX_FILE_BYTES + 1, 50 * MAX_FILE_BYTES])
def test_a_huge_file_is_not_read(size: int, settings_file: Path) -> None:
    with settings_file.open("wb") as stream:
        stream.truncate(size)

    assert refusal_of(settings_file).startswith(f"{settings_file}: larger than {MAX_FILE_BYTES} bytes")


def test_a_file_without_an_end_is_not_read_for_ever() -> None:
    assert "larger than" in refusal_of(Path("/dev/zero"))


def test_a_file_that_is_just_large_enough_takes_bounded_time(settings_file: Path) -> None:
    line = b"- {name: worker-1, url: 'http://a/'}\n"
    settings_file.write_bytes((b"a:\n" + line * (MAX_FILE_BYTES // len(line)))[:MAX_FILE_BYTES])
    started = time.monotonic()

    refusal_of(settings_file)

    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("data", "line"), [(b"\xff\xfe", 1), (b"a: 1\nb: \xe9\n", 2), ("ui:".encode("utf-16"), 1), (b"\x80", 1)]
)
def test_a_file_that_is_not_utf_8_is_told_the_line(
    data: bytes, line: int, refusal: Callable[..., str]
) -> None:
    assert f"drakkar.yaml, line {line}: not UTF-8" in refusal(data)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *(
            ("ui: {", 1),
            ("a: b: c", 1),
            ("ui:\n  port: 1\n bad\n", 3),
            ("ui:\n\tport: 1", 2),
            ("a: 'open", 1),
        ),
        *(
            ("a: *nowhere", 1),
            ("%YAML 2.0\n---\na: 1", 1),
            ("---\na: 1\n---\nb: 1", 3),
            ("}", 1),
            ("a: &b", 1),
        ),
        *(("a: !<x", 1), ("!x!y z", 1), ("? [a]\n: 1", 1), ('"\\x', 1)),
    ],
)
def test_a_file_that_is_not_yaml_is_told_the_line(text: str, line: int, refusal: Callable[..., str]) -> None:
    message = refusal(text)

    assert f"drakkar.yaml, line {line}: " in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1, hidden\nb: 2", "expected ',' or ']', but got ':'"),
        ("a: {b: [hidden", "expected ',' or ']', but got '<stream end>'"),
        ("a: hidden: 1", "mapping values are not allowed here"),
        ("a: *hidden", "found undefined alias there"),
    ],
)
def test_a_file_that_is_not_yaml_is_told_what_is_wrong(
    text: str, problem: str, refusal: Callable[..., str]
) -> None:
    assert f"not YAML: {problem}; correct the file" in refusal(text)


@pytest.mark.parametrize("text", ["ui:\n\tport: 1", "ui:\n  port: 1\n\thost: hidden", "ui: {\n\tport: 1}"])
def test_a_tab_is_told(text: str, refusal: Callable[..., str]) -> None:
    line = text.partition("\t")[0].count("\n") + 1
    assert refusal(text).endswith(f"drakkar.yaml, line {line}: holds a tab; use spaces")


def test_a_second_document_is_told(refusal: Callable[..., str]) -> None:
    message = refusal("ui: {port: 1}\n---\nui: {port: 2}\n")
    assert message.endswith("drakkar.yaml, line 2: holds two documents (---); keep one")


@pytest.mark.parametrize(
    "text", ["\x00", "a: \x01", "a: \x7f", 'a: "\\UFFFFFFFF"', "[" * 100_000, "{" * 9999, "- " * 9999]
)
def test_a_file_that_no_parser_takes_is_one_line(text: str, refusal: Callable[..., str]) -> None:
    assert "drakkar.yaml: not YAML: " in refusal(text)


@pytest.mark.parametrize("text", ["text", "7", "[]", "- a: 1", "!!set {a}", "true", "2024-01-01"])
def test_a_file_that_is_no_map_is_refused(text: str, refusal: Callable[..., str]) -> None:
    assert "drakkar.yaml, line 1: must hold a map of keys" in refusal(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("worker_name: a\nui:\n  port: 1\nworker_name: b\n", "worker_name"),
        ("ui:\n  port: 1\n\n  port: 2\n", "ui.port"),
        ('ui:\n  port: 1\n\n  "port": 2\n', "ui.port"),
        ("fleet:\n registry:\n  redis: {a:\n {b: 1, b: 2}}", "fleet.registry.redis.a.b"),
        (
            "fleet:\n registry:\n  static:\n   peers: [{}, {name: a, name: b}]",
            "fleet.registry.static.peers[1].name",
        ),
    ],
)
def test_a_key_that_is_there_twice_is_refused(text: str, key: str, refusal: Callable[..., str]) -> None:
    assert f", line 4: {key} is there twice" in refusal(text)


@pytest.mark.parametrize(
    "text",
    ["7: a", "true: a", "on: a", "null: a", "~: a", "ui: {1: 2}", "[a]: 1", "{a: 1}: 1", "2024-01-01: a"],
)
def test_a_key_must_be_text(text: str, refusal: Callable[..., str]) -> None:
    assert "a key must be text" in refusal(text)


def test_merge_keys_are_refused(refusal: Callable[..., str]) -> None:
    assert "merge keys (<<) are not supported" in refusal("a: &a {b: 1}\nui: {<<: *a}")


def test_an_alias_repeats_a_value(load: Callable[..., Settings]) -> None:
    settings = load("shared: {dir: &folder /mnt/fleet}\nstorage: {dir: *folder}")

    assert settings.storage.dir == settings.shared.dir == "/mnt/fleet"


def test_an_alias_of_itself_is_refused(refusal: Callable[..., str]) -> None:
    assert "deeper than 32" in refusal("fleet: &a {registry: {redis: {a: *a}}}")


def test_aliases_of_aliases_take_bounded_time_and_memory(refusal: Callable[..., str]) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "aliases included" in refusal("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("text", "text"),
            ("'7'", "7"),
            ("2024-01-01", "2024-01-01"),
            ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
        ),
        *(
            (text, text)
            for text in ("0123", "1_000", "0x1F", "0b11", "12:30", "+7", "-010", "1_0.5", "1:30.5")
        ),
        *(("0", 0), ("-7", -7), ("0.5", 0.5), ("-0.25", -0.25), (".5", 0.5), ("1.0e+3", 1000.0)),
        *(("=", "="), ("7", 7), ("1.5", 1.5), ("true", True), ("no", False), ("~", None), ("", None)),
        *(("[1, a]", [1, "a"]), ("{b: {c: 1}}", {"b": {"c": 1}}), ("!!str 7", "7"), ("!!int '7'", 7)),
    ],
)
def test_a_value_is_read_as_plain_data(text: str, value: Any, settings_file: Path) -> None:
    settings_file.write_text(f"a: {text}")

    assert read_yaml(settings_file) == ({"a": value}, {("a",): 1} | ({} if text[:1] != "{" else LINES))


LINES = {("a", "b"): 1, ("a", "b", "c"): 1}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "!!python/object/apply:os.getpid []",
            "!!binary aGk=",
            "!!set {a}",
            "!!omap [a: 1]",
            "!mine a",
            "!!map a",
        ),
        *(
            "!!int x",
            "!!float x",
            "!!bool x",
            "!!seq {}",
            "!!str []",
            "!!int ''",
            f"!!int {'9' * 5000}",
            "!!null [a]",
        ),
    ],
)
def test_a_tag_makes_nothing_that_is_not_plain_data(text: str, refusal: Callable[..., str]) -> None:
    assert ", line 1: a " in refusal(f"a: {text}")


def test_a_number_of_very_many_digits_is_refused(refusal: Callable[..., str]) -> None:
    assert "fleet.registry.timeout_seconds" in refusal(
        f"fleet: {{registry: {{timeout_seconds: {'9' * 5000}}}}}"
    )

"""Where settings come from, what wins, and what a wrong one is reported as."""

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from drakkar.errors import ConfigError
from drakkar.settings import Settings, load_settings
from drakkar.settings._keys import known_keys

REGISTRY = "DK_FLEET__REGISTRY__"


def test_nothing_set_gives_the_defaults() -> None:
    assert load_settings(environ={}) == Settings()


def test_the_environment_of_the_process_counts_unless_another_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DK_WORKER_NAME", "worker-1")

    assert load_settings().worker_name == "worker-1"
    assert load_settings(environ={}).worker_name == ""


def test_the_environment_wins_over_the_file_and_overrides_over_both(load: Callable[..., Settings]) -> None:
    text = "{worker_name: worker-1, cluster_name: a, ui: {port: 1}}"
    settings = load(text, {"DK_CLUSTER_NAME": "b", "DK_UI__PORT": "2"}, {"ui.port": "3"})

    assert (settings.worker_name, settings.cluster_name, settings.ui.port) == ("worker-1", "b", 3)


def test_a_variable_names_the_file_where_no_other_is_given(tmp_path: Path) -> None:
    """A program that ignored it would run without the token that the file sets."""
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    named.write_text("ui: {auth_token: t0k3n, port: 1}")
    given.write_text("ui: {port: 2}")
    environ = {"DK_CONFIG": str(named)}

    assert load_settings(environ=environ).ui.auth_token.get_secret_value() == "t0k3n"
    assert load_settings(given, environ=environ).ui.port == 2
    assert load_settings(environ={"DK_CONFIG": ""}) == Settings()
    with pytest.raises(ConfigError, match="missing"):
        load_settings(environ={"DK_CONFIG": str(tmp_path / "missing.yaml")})


def test_a_section_is_merged_key_by_key(load: Callable[..., Settings]) -> None:
    settings = load("ui: {port: 1, host: '::'}", {"DK_UI__PORT": "2"})

    assert (settings.ui.port, settings.ui.host) == (2, "::")


def test_a_map_in_a_variable_is_merged_into_that_of_the_file(load: Callable[..., Settings]) -> None:
    settings = load(
        "fleet: {registry: {plugin_options: {a: 1, b: {c: 2}}}}",
        {f"{REGISTRY}PLUGIN_OPTIONS": '{"b": {"d": 3}, "e": 4}'},
    )

    assert settings.fleet.registry.plugin_options == {"a": 1, "b": {"c": 2, "d": 3}, "e": 4}


def test_a_list_in_a_variable_replaces_that_of_the_file(load: Callable[..., Settings]) -> None:
    settings = load(
        "fleet: {registry: {static: {peers: [{name: worker-2, url: 'http://b/'}]}}}",
        {f"{REGISTRY}STATIC__PEERS": '[{"name": "worker-3", "url": "http://c/"}]'},
    )

    assert [peer.name for peer in settings.fleet.registry.static.peers] == ["worker-3"]


def test_a_variable_for_a_key_wins_over_one_for_its_section(load: Callable[..., Settings]) -> None:
    settings = load(environ={"DK_UI__PORT": "2", "DK_UI": '{"port": 1, "host": "::"}'})

    assert (settings.ui.port, settings.ui.host) == (2, "::")


def test_a_variable_can_set_a_key_in_an_empty_section(load: Callable[..., Settings]) -> None:
    assert load("ui:", {"DK_UI__PORT": "2"}).ui.port == 2


@pytest.mark.parametrize("name", ["DK_GC_INTERVAL", "DK_WORKER", "DK_", "DK", "XDK_UI__PROT", "UI__PROT"])
def test_a_name_that_is_not_meant_for_the_settings_is_left_alone(
    name: str, load: Callable[..., Settings]
) -> None:
    assert load(environ={name: "not a setting"}) == Settings()


@pytest.mark.parametrize(
    ("text", "names"),
    [("gc", ["gc"]), ("gc,lifecycle", ["gc", "lifecycle"]), (" gc ,, gc,", ["gc"]), ("", [])],
)
def test_the_short_variable_names_the_background_workers(
    text: str, names: list[str], load: Callable[..., Settings]
) -> None:
    assert list(load("{supervisor: {workers: [a]}}", {"DK_WORKERS": text}).supervisor.workers) == names


def test_the_short_and_the_long_variable_may_not_say_different_things(
    load: Callable[..., Settings], refusal: Callable[..., str]
) -> None:
    same = {"DK_WORKERS": "gc,lifecycle", "DK_SUPERVISOR__WORKERS": '["gc", "lifecycle"]'}

    assert load(environ=same).supervisor.workers == ("gc", "lifecycle")
    message = refusal(environ=same | {"DK_WORKERS": "gc"})
    assert message == "DK_WORKERS: it says something else than DK_SUPERVISOR__WORKERS; drop one"


@pytest.mark.parametrize(
    ("text", "names"),
    [("gc", ["gc"]), (" gc ,, gc,notify", ["gc", "notify"]), (' ["gc"]', ["gc"]), ("", []), ("[]", [])],
)
@pytest.mark.parametrize("name", ["DK_WORKERS", "DK_SUPERVISOR__WORKERS"])
def test_a_list_of_names_is_written_with_commas_or_as_json(
    name: str, text: str, names: list[str], load: Callable[..., Settings]
) -> None:
    assert list(load(environ={name: text}).supervisor.workers) == names


def test_a_list_of_names_that_looks_like_json_must_be_json(refusal: Callable[..., str]) -> None:
    assert "supervisor.workers must be JSON" in refusal(environ={"DK_SUPERVISOR__WORKERS": "[gc"})


FOLDERS = ["storage.dir", "shared.dir", "fleet.registry.filesystem.dir"]


@pytest.mark.parametrize("key", FOLDERS)
def test_a_relative_folder_in_the_file_is_beside_the_file(
    key: str, load: Callable[..., Settings], settings_file: Path
) -> None:
    text = "".join(f"{{{part}: " for part in key.split(".")) + "a/../b" + "}" * (key.count(".") + 1)

    assert folder_at(load(text), key) == str(settings_file.parent / "a/../b")


@pytest.mark.parametrize("key", FOLDERS)
def test_a_relative_folder_elsewhere_is_in_the_current_folder(
    key: str, load: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    variable = f"DK_{key.replace('.', '__').upper()}"

    assert folder_at(load(environ={variable: "a"}), key) == str(tmp_path / "here" / "a")
    assert folder_at(load(overrides={key: "a"}), key) == str(tmp_path / "here" / "a")
    assert folder_at(load(environ={variable: "/a/"}), key) == "/a/"
    assert folder_at(load(environ={variable: ""}), key) == ""


def test_a_relative_folder_is_refused_where_there_is_no_current_folder(
    load: Callable[..., Settings],
    refusal: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert load("{shared: {dir: a}}").shared.dir == str(tmp_path / "a")
    assert "shared.dir must be an absolute path" in refusal(environ={"DK_SHARED__DIR": "a"})


def folder_at(settings: Settings, key: str) -> str:
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return str(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("True", True), ("1", True), ("yes", True), ("on", True)),
        *(("false", False), ("FALSE", False), ("0", False), ("no", False), ("off", False)),
    ],
)
def test_a_flag_may_be_written_in_several_ways(text: str, value: bool, load: Callable[..., Settings]) -> None:
    assert load(environ={"DK_UI__ENABLED": text}).ui.enabled is value


@pytest.mark.parametrize("text", ["", "maybe", "2", "null", "[]", " true"])
def test_a_text_that_is_no_flag_is_refused(text: str, refusal: Callable[..., str]) -> None:
    assert refusal(environ={"DK_UI__ENABLED": text}).startswith(
        "DK_UI__ENABLED: ui.enabled must be true or false"
    )


@pytest.mark.parametrize(("text", "value"), [("7", 7), ("0.5", 0.5), ("1e1", 10), ("2.", 2)])
def test_a_number_may_be_written_in_several_ways(
    text: str, value: float, load: Callable[..., Settings]
) -> None:
    assert load(environ={f"{REGISTRY}TIMEOUT_SECONDS": text}).fleet.registry.timeout_seconds == value


@pytest.mark.parametrize(
    "text", ["", "ten", "0x10", "inf", "nan", "1e999", "-1", "0", "null", "9" * 5000, "1,5"]
)
def test_a_text_that_is_no_number_of_seconds_is_refused(text: str, refusal: Callable[..., str]) -> None:
    assert f"{REGISTRY}TIMEOUT_SECONDS: fleet.registry.timeout_seconds must be" in refusal(
        environ={f"{REGISTRY}TIMEOUT_SECONDS": text}
    )


@pytest.mark.parametrize(("text", "value"), [("8080", 8080), ("0", 0), ("null", None)])
def test_a_port_may_be_a_number_or_null(text: str, value: int | None, load: Callable[..., Settings]) -> None:
    assert load(environ={"DK_UI__PORT": text}).ui.port == value


@pytest.mark.parametrize("text", ["", "80.0", "http", "-1", "65536", "true"])
def test_a_text_that_is_no_port_is_refused(text: str, refusal: Callable[..., str]) -> None:
    assert refusal(environ={"DK_UI__PORT": text}).startswith("DK_UI__PORT: ui.port must be a whole number")


@pytest.mark.parametrize(
    ("text", "plain"),
    [("0123", "123"), ("+5", "5"), ("-010", "-10"), ("1_000", "1000"), (" 7", "7"), ("٣", "3")],
)
def test_a_number_is_as_it_looks_wherever_it_comes_from(
    text: str, plain: str, refusal: Callable[..., str]
) -> None:
    for key in ("ui.port", "cache.max_memory_entries", "fleet.registry.heartbeat_seconds"):
        told = f"{key} is not a number as it stands; write {plain}"
        *sections, last = key.split(".")
        start, end = "".join(f"{section}: {{" for section in sections), "}" * len(sections)
        value = text if text.strip() == text else f"'{text}'"

        assert refusal(environ={f"DK_{key.replace('.', '__').upper()}": text}).endswith(told)
        assert refusal(overrides={key: text}).endswith(told)
        assert refusal(f"{start}{last}: {value}{end}").endswith(told)


@pytest.mark.parametrize(
    ("text", "plain"), [("1e3", "1000"), ("1e-3", "0.001"), ("1.5e1", "15"), ("+.5", "0.5")]
)
def test_a_number_that_yaml_takes_for_text_is_told_how_to_write_it(
    text: str, plain: str, refusal: Callable[..., str]
) -> None:
    message = refusal(f"fleet: {{registry: {{timeout_seconds: {text}}}}}")
    assert message.endswith(f"fleet.registry.timeout_seconds is not a number as it stands; write {plain}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("'80'", ", not text; write it without quotes"), ("12:30", ", not text"), ("1" * 41, ""), ("8.5", "")],
)
def test_what_is_no_whole_number_is_told_what_it_is(
    text: str, hint: str, refusal: Callable[..., str]
) -> None:
    assert refusal(f"ui: {{port: {text}}}").endswith(f"must be a whole number from 0 to 65535{hint}")


def test_a_number_of_seconds_in_quotes_is_told_to_be_text(refusal: Callable[..., str]) -> None:
    message = refusal("fleet: {registry: {timeout_seconds: '5'}}")
    assert message.endswith("must be a number of seconds, not text; write it without quotes")


@pytest.mark.parametrize("text", ["7", "true", "null", "[]", "{}", '"quoted"'])
def test_text_is_taken_as_it_is(text: str, load: Callable[..., Settings]) -> None:
    assert load(environ={"DK_WORKER_NAME": text}).worker_name == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7", 7), ("-1.5", -1.5), ("1e3", 1000.0), ("true", True), ("false", False), ("null", None)),
        *(("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("[]", []), ("{}", {})),
        *(
            ("text", "text"),
            ("", ""),
            ("007", "007"),
            ("True", "True"),
            ("1 2", "1 2"),
            ('"quoted"', '"quoted"'),
        ),
        *(("NaN", "NaN"), ("Infinity", "Infinity"), ("1e999", "1e999"), ("9" * 5000, "9" * 5000)),
        *(("redis://u:p@host/0", "redis://u:p@host/0"), ("10.0.0.1", "10.0.0.1")),
    ],
)
@pytest.mark.parametrize("section", ["PLUGIN_OPTIONS", "REDIS"])
def test_an_option_is_json_where_it_looks_like_it_and_text_else(
    section: str, text: str, value: Any, load: Callable[..., Settings]
) -> None:
    registry = load(environ={f"{REGISTRY}{section}__SOME_OPTION": text}).fleet.registry
    options = registry.plugin_options if section == "PLUGIN_OPTIONS" else registry.section("redis")

    assert options == {"some_option": value}
    assert type(options["some_option"]) is type(value)


@pytest.mark.parametrize("text", ["1e5", "true", "null", "007", "[1]", "{", '"quoted"', "[hidden"])
@pytest.mark.parametrize("name", ["PASSWORD", "SENTINEL_PASSWORD", "TOKEN", "TLS__API_KEY"])
def test_a_secret_is_text_whatever_it_looks_like(name: str, text: str, load: Callable[..., Settings]) -> None:
    options: Any = load(environ={f"{REGISTRY}REDIS__{name}": text}).fleet.registry.section("redis")
    for part in name.lower().split("__"):
        options = options[part]

    assert options == text


def test_text_that_looks_like_a_number_is_written_in_the_json_of_its_map(
    load: Callable[..., Settings],
) -> None:
    registry = load(environ={f"{REGISTRY}REDIS": '{"prefix": "1e5"}'}).fleet.registry

    assert registry.section("redis") == {"prefix": "1e5"}


def test_a_password_in_the_place_of_a_key_is_not_shown(refusal: Callable[..., str]) -> None:
    for key in ("redis://me:hidden@example.org/0", "https://me:hidden@example.org?a=b"):
        message = refusal(yaml.safe_dump({"fleet": {"registry": {key: {}}}}))
        assert "unknown key fleet.registry." in message


def test_an_option_may_be_inside_another(load: Callable[..., Settings]) -> None:
    registry = load(environ={f"{REGISTRY}REDIS__TLS__CA_FILE": "ca.pem"}).fleet.registry

    assert registry.section("redis") == {"tls": {"ca_file": "ca.pem"}}


@pytest.mark.parametrize(
    "text", ["[fleet", "{fleet}", '{"a": b}', "[NaN]", "[1e999]", '{"a": 1, "a": 2}', "[" * 9999]
)
def test_an_option_that_only_starts_like_json_is_text(text: str, load: Callable[..., Settings]) -> None:
    registry = load(environ={f"{REGISTRY}PLUGIN_OPTIONS__PREFIX": text}).fleet.registry

    assert registry.plugin_options == {"prefix": text}


@pytest.mark.parametrize(
    "name", [f"{REGISTRY}PLUGIN_OPTIONS", f"{REGISTRY}REDIS", f"{REGISTRY}STATIC__PEERS", "DK_UI"]
)
@pytest.mark.parametrize("text", ["", "hidden", "{", "a=1,b=hidden"])
def test_lists_and_maps_in_variables_are_json(name: str, text: str, refusal: Callable[..., str]) -> None:
    message = refusal(environ={name: text})

    assert message.startswith(f"{name}: {name[3:].lower().replace('__', '.')} must be JSON")


def test_a_key_inside_what_is_no_map_cannot_be_set(refusal: Callable[..., str]) -> None:
    message = refusal("fleet: {registry: {redis: {tls: true}}}", {f"{REGISTRY}REDIS__TLS__CA_FILE": "ca.pem"})

    assert message.startswith(
        f"{REGISTRY}REDIS__TLS__CA_FILE: fleet.registry.redis.tls.ca_file cannot be set"
    )
    assert "fleet.registry.redis.tls is" in message


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("workername: worker-1", "workername", "worker_name"),
        ("workers: [gc]", "workers", "supervisor.workers"),
        ("{fleet: {registry: {provder: none}}}", "fleet.registry.provder", "fleet.registry.provider"),
        ("{fleet: {registry: {hearbeat: 3}}}", "fleet.registry.hearbeat", "fleet.registry.heartbeat_seconds"),
        ("{fleet: {registry: {reddis: {a: 1}}}}", "fleet.registry.reddis", "fleet.registry.redis"),
        ("{fleet: {registy: {provider: none}}}", "fleet.registy", "fleet.registry"),
        ("{ui: {token: hidden}}", "ui.token", "ui.auth_token"),
        ("{auth_token: hidden}", "auth_token", "ui.auth_token"),
        (
            "{fleet: {registry: {filesystem: {dirs: /a}}}}",
            "fleet.registry.filesystem.dirs",
            "fleet.registry.filesystem.dir",
        ),
        ("{UI: {port: 1}}", "UI", "ui"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    text: str, unknown: str, nearest: str, refusal: Callable[..., str]
) -> None:
    message = refusal(text)

    assert f", line 1: unknown key {unknown}; did you mean {nearest}?" in message


def test_an_unknown_key_that_is_like_no_other_is_told_what_there_is(refusal: Callable[..., str]) -> None:
    message = refusal("shared: {nonsense: 1}")

    assert message.endswith("unknown key shared.nonsense; known keys are dir")


def test_an_unknown_variable_is_named_with_the_nearest_known_one(refusal: Callable[..., str]) -> None:
    message = refusal(environ={"DK_FLEET__REGISTRY__PROVIDR": "none"})

    assert message == (
        "DK_FLEET__REGISTRY__PROVIDR: unknown key fleet.registry.providr;"
        " did you mean fleet.registry.provider (DK_FLEET__REGISTRY__PROVIDER)?"
    )


@pytest.mark.parametrize("name", ["DK_ui__port", "DK_Ui__Port", "DK_FLEET__REGISTRY__REDIS__Url"])
def test_a_variable_is_written_in_capitals(name: str, refusal: Callable[..., str]) -> None:
    assert refusal(environ={name: "1"}) == f"{name}: write it in capitals, {name.upper()}"


@pytest.mark.parametrize(
    "name", ["DK__", "DK___", "DK___UI", "DK_UI__", "DK_UI____PORT", "DK_A__B", "DK_WORKER_NAME__X"]
)
def test_a_name_with_two_underscores_is_meant_for_the_settings(
    name: str, refusal: Callable[..., str]
) -> None:
    assert name in refusal(environ={name: "hidden"})


def test_every_known_key_is_the_nearest_to_itself_misspelt(refusal: Callable[..., str]) -> None:
    for key in known_keys():
        section, _, name = key.rpartition(".")
        misspelt = f"{section}.{name[:-1]}" if section else name[:-1]
        if misspelt in known_keys():
            continue
        assert difflib.get_close_matches(key, [misspelt])
        message = refusal(overrides={misspelt: "1"})
        assert f"did you mean {key}?" in message, message


@pytest.mark.parametrize(
    ("text", "key", "nested"),
    [
        ("ui.port: 80", "ui.port", "ui:, below it port:"),
        ("fleet.registry: {}", "fleet.registry", "fleet:, below it registry:"),
        (
            "fleet: {registry.provider: none}",
            "fleet.registry.provider",
            "fleet:, below it registry:, below it provider:",
        ),
        (
            "fleet.registry: {redis.url: hidden}",
            "fleet.registry",
            "fleet:, below it registry:",
        ),
        (
            "fleet: {registry: {redis.url: hidden}}",
            "fleet.registry.redis.url",
            "fleet:, below it registry:, below it redis:, below it url:",
        ),
    ],
)
def test_a_key_with_dots_is_told_that_keys_are_nested(
    text: str, key: str, nested: str, refusal: Callable[..., str]
) -> None:
    assert refusal(text).endswith(f"line 1: unknown key {key}; keys are nested: write {nested}")


def test_an_override_is_told_as_one(refusal: Callable[..., str]) -> None:
    assert refusal(overrides={"ui.port": "x"}).startswith("overrides: ui.port must be a whole number")


def test_overrides_may_be_numbers_true_and_false(load: Callable[..., Settings]) -> None:
    settings = load(
        overrides={
            "ui.port": 1,
            "cache.enabled": True,
            "fleet.registry.heartbeat_seconds": 0.5,
            "fleet.registry.redis.a": 7,
        }
    )

    assert (settings.ui.port, settings.cache.enabled) == (1, True)
    assert settings.fleet.registry.heartbeat_seconds == 0.5
    assert settings.fleet.registry.section("redis") == {"a": 7}


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("ui.port", None, "must be given as text, a number, true or false, not null"),
        ("supervisor.workers", ["hidden"], "must be given as text, a number, true or false, not a list"),
        ("fleet.registry", {"redis": "hidden"}, "must be given as text, a number, true or false, not a map"),
        ("ui.host", b"hidden", "must be given as text, a number, true or false, not a bytes"),
        ("ui.port", True, "must be a whole number from 0 to 65535, not true or false"),
        ("worker_name", 1, "must be text, not a number; put it in quotes"),
    ],
)
def test_an_override_of_another_kind_is_named(
    key: str, value: Any, problem: str, refusal: Callable[..., str]
) -> None:
    assert refusal(overrides={key: value}) == f"overrides: {key} {problem}"


def test_the_variable_that_won_is_named_and_not_the_file(refusal: Callable[..., str]) -> None:
    assert refusal("ui: {port: 1}", {"DK_UI__PORT": "x"}).startswith("DK_UI__PORT: ui.port ")


def test_a_broken_relation_names_both_places(refusal: Callable[..., str]) -> None:
    message = refusal(
        "fleet:\n registry:\n  offline_after_seconds: 20\n", {f"{REGISTRY}HEARTBEAT_SECONDS": "11"}
    )

    assert (
        f"drakkar.yaml, line 3, {REGISTRY}HEARTBEAT_SECONDS: fleet.registry.offline_after_seconds " in message
    )
    assert "fleet.registry.heartbeat_seconds (11)" in message


def test_several_errors_are_counted(refusal: Callable[..., str]) -> None:
    message = refusal("{ui: {port: x, host: 1}, fleet: {registry: {timeout_seconds: 0}}}", {"DK_UI": "{"})

    assert message.startswith("DK_UI: ui must be JSON")
    assert message.endswith(" (and 3 more)")


def test_an_item_of_a_list_is_named_by_its_place_and_line(refusal: Callable[..., str]) -> None:
    message = refusal(
        "fleet:\n registry:\n  static:\n   peers:\n    - {name: a, url: 'http://a/'}\n    - {name: b, url: b}"
    )

    assert "drakkar.yaml, line 6: fleet.registry.static.peers[1].url must be" in message


@pytest.mark.parametrize(
    "text",
    [
        "ui: {auth_token: [hidden]}",
        "ui: {auth_token: 'hidden and spaces'}",
        "fleet: {registry: {redis: {password: !hidden x}}}",
        "fleet: {registry: {redis: {password: *hidden }}}",
        "fleet: {registry: {redis: {password: '@hidden}}}",
        "fleet: {registry: {redis: {password: %hidden}}}",
        "fleet: {registry: {redis: hidden}}",
        "fleet: {registry: {redis: {password: !!int hidden}}}",
        "ui: {public_url: 'http://user:hidden@host/'}",
        "ui: {auth_token: hidden\nx: [",
    ],
)
def test_no_message_repeats_a_secret(text: str, refusal: Callable[..., str]) -> None:
    refusal(text)  # which looks for it


@pytest.mark.parametrize(
    "text", ["ui: {auth_token: *hidden }", "ui: {auth_token: 'hidden hidden'}", "ui: 'hidden"]
)
def test_no_cause_of_an_error_repeats_a_secret(text: str, settings_file: Path) -> None:
    settings_file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_settings(settings_file, environ={})
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("key", ["ui.port", "fleet.registry.refresh_seconds", "cache.max_memory_entries"])
def test_an_empty_value_where_a_number_belongs_is_called_empty(key: str, refusal: Callable[..., str]) -> None:
    assert refusal(overrides={key: ""}).endswith("not empty")


def test_a_period_that_would_leave_nothing_to_the_rest_is_refused(refusal: Callable[..., str]) -> None:
    message = refusal(overrides={"supervisor.leases.renew_seconds": "0.000001"})

    key = "supervisor.leases.renew_seconds"
    assert message == f"overrides: {key} must be a finite number of seconds, at least 0.01"

"""Settings as they may be shown."""

import json
from typing import Any

import pytest
from drakkar.settings import Settings, masked
from drakkar.settings.mask import MASK, mask_text


def options(**values: Any) -> Any:
    data = {"fleet": {"registry": {"provider": "redis", "redis": values, "plugin_options": values}}}
    registry = masked(Settings.model_validate(data))["fleet"]["registry"]
    assert registry["redis"] == registry["plugin_options"]
    return registry["redis"]


def test_settings_without_secrets_are_shown_as_they_are() -> None:
    data = {"worker_name": "worker-1", "ui": {"public_url": "http://host:8080/?a=b"}}
    shown = masked(Settings.model_validate(data))

    lists = {name: shown[name] for name in ("ui", "fleet", "supervisor")}  # which hold lists, not tuples
    assert shown == Settings.model_validate(data).model_dump() | lists
    assert shown["ui"]["public_url"] == "http://host:8080/?a=b"


def test_what_is_shown_can_be_written_as_json_and_read_again() -> None:
    settings = Settings.model_validate(
        {"fleet": {"registry": {"static": {"peers": [{"name": "worker-2", "url": "http://b/"}]}}}}
    )

    assert Settings.model_validate(json.loads(json.dumps(masked(settings)))) == settings


def test_the_token_is_hidden_and_an_empty_one_is_seen_to_be_empty() -> None:
    assert masked(Settings.model_validate({"ui": {"auth_token": "hidden"}}))["ui"]["auth_token"] == MASK
    assert masked(Settings())["ui"]["auth_token"] == ""


@pytest.mark.parametrize(
    "name",
    [
        *(
            "token",
            "auth_token",
            "tokens",
            "TOKEN",
            "password",
            "Password",
            "db_password",
            "passwd",
            "secret",
        ),
        *("client-secret", "secret_key", "api_key", "apikey", "private_key", "passphrase", "credentials"),
    ],
)
@pytest.mark.parametrize("value", ["hidden", 123456, ["hidden"], {"a": "hidden"}, True])
def test_an_option_named_like_a_secret_is_hidden(name: str, value: Any) -> None:
    assert options(**{name: value}) == {name: MASK}
    assert options(outer=[{name: value}]) == {"outer": [{name: MASK}]}


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_secret_is_seen_to_be_empty(value: Any) -> None:
    assert options(password=value) == {"password": value}


@pytest.mark.parametrize(
    "value", ["redis://host:6379/0", "a@b", "at 10:00 @home", 7, 1.5, True, None, [1, "b"], {}]
)
def test_another_option_is_shown_as_it_is(value: Any) -> None:
    assert options(address=value) == {"address": value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:hidden@host:6379/0", f"redis://{MASK}@host:6379/0"),
        ("redis://:hidden@host", f"redis://{MASK}@host"),
        ("https://hidden@host/path", f"https://{MASK}@host/path"),
        ("redis://:hidden@hidden@host/", f"redis://{MASK}@host/"),
        ("redis://:hid/den?hidden#hidden@host/", f"redis://{MASK}@host/"),
        ("redis://u:hidden@a:1,redis://u:hidden@b:2", f"redis://{MASK}@b:2"),
        ("user:hidden@host:6379", f"{MASK}@host:6379"),
        ("http://host/?token=hidden&a=b", f"http://host/?token={MASK}&a=b"),
        ("http://host/?a=b&access_token=hidden#c", f"http://host/?a=b&access_token={MASK}#c"),
        ("http://host/?PASSWORD=hidden;secret=hidden", f"http://host/?PASSWORD={MASK};secret={MASK}"),
        ("host=a password=hidden user=b", f"host=a password={MASK} user=b"),
        ("connect to redis://:hidden@host now", f"connect to redis://{MASK}@host now"),
    ],
)
def test_a_secret_inside_a_text_is_hidden(text: str, shown: str) -> None:
    assert mask_text(text) == shown
    assert options(address=text) == {"address": shown}
    assert options(nodes=[{"url": text}]) == {"nodes": [{"url": shown}]}

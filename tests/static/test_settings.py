"""Which peer lists hold, and what is said of those that do not."""

import re
from typing import Any

import pytest
from drakkar.fleet.card import check_card, encode_card
from drakkar_static import make_registry
from drakkar_static.settings import Peer, read_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GOOD = {"name": "worker-1", "cluster": "search", "url": "http://192.0.2.1:8080/"}
SECOND = "fleet.registry.static.peers[1]"


def with_second(**fields: Any) -> dict[str, Any]:
    return {"peers": [GOOD, {"name": "worker-2", "url": "http://192.0.2.2:8080/"} | fields]}


def refusal(options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the callers look at the whole message
        make_registry(options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_it_reads_the_peers_in_their_order() -> None:
    assert read_options(with_second(cluster="größe")) == (
        Peer("worker-1", "search", "http://192.0.2.1:8080/"),
        Peer("worker-2", "größe", "http://192.0.2.2:8080/"),
    )


def test_a_cluster_is_empty_when_it_is_left_out() -> None:
    assert read_options(with_second())[1].cluster == ""


@pytest.mark.parametrize("options", [{}, {"peers": []}, {"peers": ()}])
def test_no_list_is_an_empty_list(options: dict[str, Any]) -> None:
    assert read_options(options) == ()


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "https://host.example/path?query#fragment",
        "HTTP://host:1/",
        "http://[2001:db8::1]:8080/",
        "http://192.0.2.1:65535/",
    ],
)
def test_it_accepts_an_address_with_a_host(url: str) -> None:
    assert read_options(with_second(url=url))[1].url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8080",
        "//host/",
        "ftp://host/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://:8080/",
        "http://host:port/",
        "http://host:65536/",
        "http://[2001:db8::1/",
        "http://ho st/",
        "http://host/\nx",
        "http://host/\x00",
        " http://host/",
    ],
)
def test_it_refuses_an_address_that_is_no_web_address_with_a_host(url: str) -> None:
    message = refusal(with_second(url=url))
    assert message == f"{SECOND}.url must be an http:// or https:// address with a host"


def test_it_refuses_a_password_in_an_address_and_does_not_show_it() -> None:
    message = refusal(with_second(url="http://user:hunter2@host/"))
    assert message.startswith(f"{SECOND}.url must not hold a user name or password")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("peer", "message"),
    [
        ({"name": None}, f"{SECOND}.name is missing"),
        ({"name": 7}, f"{SECOND}.name must be a string, not int"),
        ({"name": ""}, f"{SECOND}.name must not be empty"),
        ({"name": " \t"}, f"{SECOND}.name must not be empty"),
        (
            {"name": "x" * 201},
            f"{SECOND}.name must have at most 200 characters, not 201",
        ),
        ({"cluster": 3}, f"{SECOND}.cluster must be a string, not int"),
        ({"url": None}, f"{SECOND}.url is missing"),
        ({"url": ["http://host/"]}, f"{SECOND}.url must be a string, not list"),
        (
            {"adress": "x"},
            f"{SECOND} has no option 'adress', there is name, cluster, url",
        ),
        ({"nmae": "x"}, f"{SECOND} has no option 'nmae', did you mean name?"),
        ({5: "x"}, f"{SECOND} has no option '5', there is name, cluster, url"),
        (
            {"name": "worker-1"},
            f"{SECOND}.name must differ from peers[0].name, both are 'worker-1'",
        ),
    ],
)
def test_it_names_the_field_that_does_not_hold(peer: dict[Any, Any], message: str) -> None:
    second = {"name": "worker-2", "url": "http://192.0.2.2:8080/"} | peer
    assert refusal({"peers": [GOOD, second]}) == message


def test_a_name_may_have_two_hundred_characters() -> None:
    assert read_options(with_second(name="ü" * 200))[1].name == "ü" * 200


@pytest.mark.parametrize("left_out", ["name", "url"])
def test_it_names_a_field_that_is_left_out(left_out: str) -> None:
    peer = {key: value for key, value in GOOD.items() if key != left_out}
    assert refusal({"peers": [peer]}) == f"fleet.registry.static.peers[0].{left_out} is missing"


@pytest.mark.parametrize("peers", [None, {}, {"worker-1": "http://host/"}, "worker-1", 5])
def test_it_refuses_peers_that_are_no_list(peers: Any) -> None:
    kind = type(peers).__name__
    assert refusal({"peers": peers}) == f"fleet.registry.static.peers must be a list of peers, not {kind}"


@pytest.mark.parametrize("entry", [None, "worker-1", ["worker-1"], 5])
def test_it_refuses_an_entry_that_is_no_mapping(entry: Any) -> None:
    kind = type(entry).__name__
    assert refusal({"peers": [GOOD, entry]}) == (f"{SECOND} must have a name and a url, not be {kind}")


def test_it_refuses_an_unknown_option_with_the_nearest_one() -> None:
    assert refusal({"peer": []}) == "fleet.registry.static has no option 'peer', did you mean peers?"


def test_it_refuses_options_of_other_providers() -> None:
    message = refusal({"peers": [], "prune_after_seconds": 60})
    assert message == "fleet.registry.static has no option 'prune_after_seconds', there is peers"


def test_it_refuses_what_is_too_long_for_a_card() -> None:
    message = refusal(with_second(cluster="é" * 2048))
    assert re.fullmatch(re.escape(SECOND) + r" makes a card of 4\d\d\d bytes, more than 4096", message)


@pytest.mark.parametrize("field", ["name", "cluster"])
def test_it_refuses_half_a_character(field: str) -> None:
    message = refusal(with_second(**{field: "\ud800"}))
    assert message == f"{SECOND} holds half a character, which no card can carry"


_TEXT = st.text(max_size=12) | st.sampled_from(["http://h/", "https://[::1]/", "worker-1", "http://u@h"])
_VALUE = st.none() | st.booleans() | st.integers() | _TEXT | st.lists(_TEXT, max_size=2)
_KEY = st.sampled_from(["name", "cluster", "url"]) | st.text(max_size=4)
_ENTRY = st.dictionaries(_KEY, _VALUE, max_size=4) | _VALUE


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["peers", "peer", "x"]), st.lists(_ENTRY, max_size=3) | _VALUE))
def test_any_options_make_good_cards_or_a_one_line_error(options: dict[str, Any]) -> None:
    try:
        peers = read_options(options)
    except ValueError as error:
        assert str(error).startswith("fleet.registry.static")  # noqa: PT017 - either outcome is allowed
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        for peer in peers:
            check_card(peer.card())
            encode_card(peer.card())

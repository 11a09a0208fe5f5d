"""Logging: in the formats of our own commands, and in the logging of a program that embeds a worker."""

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from drakkar.telemetry.logs import LOG_LEVELS, MAX_TEXT_CHARS, LogFormat, configure_logging, get_logger


class Output:
    """What was written to standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text

    def is_terminal(self, terminal: bool) -> None:
        self._monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Output]:
    """Standard error while our commands' logging is set up; everything is put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("drakkar")
    before = (root.level, [*root.handlers], ours.level)
    for handler in before[1]:
        root.removeHandler(handler)  # else pytest's own would be closed
    yield Output(capsys, monkeypatch)
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    ours.setLevel(before[2])


def lines_of(output: Output) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in output.getvalue().splitlines()]


def logged(output: Output, **fields: Any) -> dict[str, Any]:
    """The one line that an event with these fields makes, as JSON."""
    configure_logging("info", "json")
    get_logger().warning("fleet_happened", **fields)
    [line] = lines_of(output)
    return line


ODD_NAMES = [
    *("name", "msg", "args", "message", "asctime", "levelname", "levelno", "lineno", "module", "exc_text"),
    *("stack_info", "stacklevel", "extra", "fields", "logger", "stack", "process", "thread", "filename"),
    *("positional_args", "_record", "_from_structlog", "wrapped", "new", "class", "a b"),
]
ODD_VALUES: list[tuple[Any, Any]] = [
    (float("nan"), "nan"),
    (float("inf"), "inf"),
    ("\ud800", "\ud800"),
    ("%s %d {}", "%s %d {}"),
    ("\x1b[31m\n\u202e", "\x1b[31m\n\u202e"),
    (b"\xff", "b'\\xff'"),
    ({1: 2, (3, 4): {"a": None}}, {"1": 2, "(3, 4)": {"a": None}}),
    ((1, 2.5, True, None), [1, 2.5, True, None]),
    (OSError(2, "no"), "FileNotFoundError(2, 'no')"),
    (2**64, 2**64),
]


class UnprintableError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


# -- as JSON


def test_a_line_is_an_object_with_time_level_event_and_fields(output: Output) -> None:
    line = logged(output, worker="worker-1", suppressed=3)
    moment = line.pop("timestamp")
    assert moment.endswith("Z")
    assert "T" in moment
    assert line == {"level": "warning", "event": "fleet_happened", "worker": "worker-1", "suppressed": 3}


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("fmt", ["json", "console"])
def test_a_field_may_have_any_name(output: Output, fmt: LogFormat, name: str) -> None:
    configure_logging("info", fmt)
    get_logger().warning("fleet_happened", **{name: "some value"})
    assert name in output.getvalue()
    assert "some value" in output.getvalue()
    assert "Traceback" not in output.getvalue()


@pytest.mark.parametrize("name", ["level", "timestamp"])
def test_a_field_of_a_name_that_is_taken_is_kept_beside_it(output: Output, name: str) -> None:
    line = logged(output, **{name: "mine"})
    assert line["level"] == "warning"
    assert line["timestamp"] != "mine"
    assert "mine" in line.values()


@pytest.mark.parametrize(("value", "shown"), ODD_VALUES, ids=lambda value: ascii(value)[:30])
def test_a_field_may_have_any_value(output: Output, value: Any, shown: Any) -> None:
    assert logged(output, value=value)["value"] == shown


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_a_value_that_cannot_be_shown_is_named_by_its_type(output: Output, fmt: LogFormat) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    configure_logging("info", fmt)
    get_logger().warning("fleet_happened", a=UnprintableError(), b=circle, c=deep, d=10**6000)
    text = output.getvalue()
    assert "<UnprintableError>" in text
    assert "Traceback" not in text
    assert len(text) < 5000


def test_is_one_line_whatever_a_field_holds(output: Output) -> None:
    assert logged(output, value="a\nb\r\u2028c\x85")["value"] == "a\nb\r\u2028c\x85"


def test_an_error_under_way_is_shown_with_its_trace(output: Output) -> None:
    configure_logging("info", "json")
    try:
        raise OSError("broken")
    except OSError:
        get_logger().exception("fleet_happened")
    [line] = lines_of(output)
    assert "Traceback" in line["exception"]
    assert "OSError: broken" in line["exception"]


def test_lines_of_other_libraries_have_their_message_as_event(output: Output) -> None:
    configure_logging("info", "json")
    logging.getLogger("somebody").warning("it took %d s", 3, extra={"fields": "theirs", "event": "theirs"})
    [line] = lines_of(output)
    del line["timestamp"]
    assert line == {"level": "warning", "event": "it took 3 s", "logger": "somebody"}


def test_errors_of_other_libraries_keep_their_trace(output: Output) -> None:
    configure_logging("info", "json")
    try:
        raise OSError("cannot reach redis://me:hunter2@10.0.0.1/")
    except OSError:
        logging.getLogger("somebody").exception("failed")
    [line] = lines_of(output)
    assert "Traceback" in line["exception"]
    assert "hunter2" not in output.getvalue()


# -- as text


def test_a_line_for_people_has_time_level_event_and_fields(output: Output) -> None:
    configure_logging("info", "console")
    get_logger().warning("fleet_happened", worker="worker-1", suppressed=3)
    moment, level, event, *fields = output.getvalue().split()
    assert moment.endswith("Z")
    assert (level, event, fields) == ("warning", "fleet_happened", ["worker='worker-1'", "suppressed=3"])


@pytest.mark.parametrize(
    "text", ["\x1b[2J\x1b]0;owned\x07", "a\nfleet_forged level=info", "\u202egnp", "\r\x08", "\x9b1m"]
)
def test_what_a_terminal_obeys_is_shown_escaped(output: Output, text: str) -> None:
    configure_logging("info", "console")
    get_logger().warning("fleet_happened", worker=text, nested={text: [text]})
    logging.getLogger("somebody").warning(text.replace("\n", " "))
    assert all(char.isprintable() or char == "\n" for char in output.getvalue())
    assert len(output.getvalue().splitlines()) == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_uses_colors_on_a_terminal_alone(output: Output, terminal: bool) -> None:
    output.is_terminal(terminal)
    configure_logging("info", "console")
    get_logger().error("fleet_happened")
    assert ("\x1b[" in output.getvalue()) is terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_by_default_a_terminal_gets_text_and_everything_else_json(output: Output, terminal: bool) -> None:
    output.is_terminal(terminal)
    configure_logging("info")
    get_logger().info("fleet_happened")
    assert output.getvalue().startswith("{") is not terminal


# -- levels


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_writes_its_level_and_those_above(output: Output, level: str) -> None:
    configure_logging(level, "json")
    for each in LOG_LEVELS:
        getattr(get_logger(), each)("fleet_happened")
    assert [line["level"] for line in lines_of(output)] == [*LOG_LEVELS[LOG_LEVELS.index(level) :]]


def test_other_libraries_are_not_heard_below_warning(output: Output) -> None:
    configure_logging("debug", "json")
    for name in ("httpx", "uvicorn.error", "asyncio"):
        logging.getLogger(name).info("chatter")
    assert output.getvalue() == ""


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="choose one of debug, info, warning, error"):
        configure_logging("loud")


# -- secrets

SECRETS = [
    "redis://hunter2@10.0.0.1:6379/0",
    "redis://:hunter2@10.0.0.1:6379/0",
    "redis://me:hunter2@10.0.0.1:6379/0",
    "redis://me:hun/ter2#?hunter2@10.0.0.1",
    "redis://me:p@hunter2@10.0.0.1",
    "http://10.0.0.1:8500/v1/kv?token=hunter2&x=1",
    "http://10.0.0.1/?a=1&password=hunter2",
    "PASSWORD=hunter2; api_key=hunter2, access-key=hunter2",
    "cannot connect to etcd://root:hunter2@10.0.0.1, etcd://root:hunter2@10.0.0.2: refused",
]


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("fmt", ["json", "console"])
def test_secrets_are_masked_wherever_they_stand(output: Output, fmt: LogFormat, text: str) -> None:
    configure_logging("debug", fmt)
    log = get_logger()
    log.debug("fleet_happened", value=text)
    log.info("fleet_happened", value={"a": [text, (text,)], text: 1})
    log.warning("fleet_happened", value=OSError(text), other={text})
    logging.getLogger("somebody").warning("%s", text)
    try:
        raise OSError(text) from ValueError(text)
    except OSError:
        log.exception("fleet_happened")
        logging.getLogger("somebody").exception("failed")
    shown = output.getvalue()
    assert shown.count("fleet_happened") == 4
    assert "hunter2" not in shown
    assert "10.0.0" in shown or "://" not in text  # what is no secret stays


@pytest.mark.parametrize(
    "text", ["http://10.0.3.17:8080/", "worker-1@host", "token=17", "a=b@c", "mailto:me@example.org", "x://"]
)
def test_what_is_no_secret_is_not_masked(output: Output, text: str) -> None:
    assert logged(output, value=text)["value"] == text


# -- in a program that embeds a worker


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_a_very_long_text_is_cut_without_showing_half_a_secret(output: Output, fmt: LogFormat) -> None:
    text = (
        "x" * (MAX_TEXT_CHARS - 20)
        + " redis://me:hunter2"
        + "hunter2" * 1000
        + "@10.0.0.1 "
        + "y" * 5_000_000
    )
    configure_logging("info", fmt)
    try:
        raise ValueError(text)
    except ValueError:
        get_logger().exception("fleet_happened", value=text)
        logging.getLogger("somebody").exception(text)
    shown = output.getvalue()
    assert "hunter" not in shown
    assert len(shown) < 8 * MAX_TEXT_CHARS
    assert f"(cut, of {len(text)} characters)" in shown


def test_an_embedding_program_sees_text_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        get_logger().warning(
            "fleet_happened", worker="worker-1", url="redis://me:hunter2@10.0.0.1/", error=OSError("x")
        )
    [record] = caplog.records
    assert (record.name, record.levelname) == ("drakkar", "WARNING")
    assert record.getMessage() == (
        "fleet_happened worker='worker-1' url='redis://***@10.0.0.1/' error=\"OSError('x')\""
    )
    assert record.__dict__["event"] == "fleet_happened"
    assert record.__dict__["fields"] == {
        "worker": "worker-1",
        "url": "redis://***@10.0.0.1/",
        "error": "OSError('x')",
    }


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_field_collides_with_what_a_record_has(caplog: pytest.LogCaptureFixture, name: str) -> None:
    get_logger().warning("fleet_happened", **{name: "some value"})
    [record] = caplog.records
    assert record.__dict__["fields"] == {name: "some value"}
    assert (record.name, record.lineno > 0) == ("drakkar", True)


def test_an_embedding_programs_structlog_configuration_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def break_it(*_: Any) -> Any:
        raise AssertionError("our events went through the program's processors")

    structlog.configure(processors=[break_it])
    try:
        get_logger().warning("fleet_happened")
    finally:
        structlog.reset_defaults()
    assert [record.message for record in caplog.records] == ["fleet_happened"]


def test_costs_nothing_below_the_programs_level(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[str] = []

    class Value:
        def __repr__(self) -> str:
            shown.append("once more")
            return "value"

    with caplog.at_level(logging.ERROR):
        get_logger().warning("fleet_happened", value=Value())
    assert (caplog.records, shown) == ([], [])

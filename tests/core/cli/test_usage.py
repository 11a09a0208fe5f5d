"""The command line as a whole: help, wrong usage, and output that cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest
from drakkar.cli import _entry, run
from drakkar.cli._parser import COMMANDS
from drakkar.telemetry.logs import LOG_LEVELS
from support.commands import Drakkar, end_of

OUTPUTS = [
    ["config"],
    ["config", "--json"],
    ["providers"],
    ["providers", "--json"],
    ["--help"],
    ["--version"],
]


def test_it_prints_its_version(drakkar: Drakkar) -> None:
    ended = drakkar("--version")

    assert (ended.status, ended.out, ended.err) == (0, "drakkar 0.1.0\n", "")


def test_it_prints_help_alone_but_that_is_wrong_usage(drakkar: Drakkar) -> None:
    ended, asked = drakkar(), drakkar("--help")

    assert (ended.status, asked.status) == (2, 0)
    assert ended.out == asked.out
    assert ended.err == asked.err == ""
    assert all(f"\n    {name}" in asked.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_it_prints_help_for_each_command(name: str, drakkar: Drakkar) -> None:
    ended = drakkar(name, "--help")

    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"usage: drakkar {name} ")


def test_every_command_has_a_file_of_its_own() -> None:
    files = {path.stem for path in Path(run.__file__).parent.glob("[a-z]*.py")}

    assert files == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nonsense"], "argument COMMAND: invalid choice: 'nonsense'"),
        (["--nonsense"], "there is no option --nonsense; see drakkar --help"),
        (["run", "--nonsense"], "there is no option --nonsense; see drakkar run --help"),
        (["run", "--auth-token=hidden"], "there is no option --auth-token; see drakkar run --help"),
        (["run", "hidden"], "there is an argument too many; see drakkar run --help"),
        (["run", "--port"], "argument --port: expected one argument; see drakkar run --help"),
        (["run", "--log-level", "loud"], "argument --log-level: invalid choice: 'loud'"),
        (["run", "--prov", "none"], "there is no option --prov; see drakkar run --help"),
        (["run", "--port", "eighty"], "command line: ui.port must be a whole number from 0 to 65535"),
        (["run", "--host", ""], "command line: ui.host must be a host name or an address"),
        (["run", "--host", "256.1.1.1"], "command line: ui.host must be a host name or an address"),
        (
            ["run", "--provider=none", "--workers", "a b"],
            "command line: supervisor.workers: there is no background worker 'a b'; separate names with",
        ),
        (["run", "--worker-name", "a\nb"], "command line: worker_name must not hold control characters"),
        (
            ["run", "--provider", "nonsense"],
            "command line: fleet.registry.provider is 'nonsense', and there is no such provider",
        ),
        (["run", "--set", "hidden"], "--set must be followed by KEY=VALUE"),
        (["run", "--set", "=hidden"], "--set must be followed by KEY=VALUE"),
        (["run", "--set", "ui.prot=1"], "command line: unknown key ui.prot; did you mean ui.port?"),
        (["run", "-c", "missing.yaml"], "missing.yaml: there is no such file"),
        (["run", "-c", ""], "argument -c/--config: names no file; see drakkar run --help"),
        (["config", "--config="], "argument -c/--config: names no file; see drakkar config --help"),
        (["config", "-c", "."], ".: cannot be read: Is a directory"),
        (["config", "-c", "a\nb"], "a\\nb: there is no such file"),
        (["workers", "-c", "missing.yaml"], "missing.yaml: there is no such file"),
        (["workers", "--url", "host:8080"], "--url must be an http:// or https:// URL with a host"),
        (["workers", "--url", "http://u:hidden@host/"], "--url must not hold a user name or password"),
        (["testkit"], "the following arguments are required: NAME; see drakkar testkit --help"),
        (["testkit", "cardbox", "--options", "hidden"], "--options must be a JSON object"),
        (["testkit", "cardbox", "--options", "[]"], "--options must be a JSON object"),
        (["testkit", "nonsense"], "NAME is 'nonsense', and there is no such provider"),
        (["testkit", "cardbox", "--only", "leases"], "cardbox has no leases"),
        (["leases", "step-down"], "leases step-down must be followed by the name of a lease"),
        (["leases", "--watch", "step-down", "gc-leader"], "--watch shows the leases and goes with no step-"),
        (["config", "nonsense"], "argument action: invalid choice: 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_to_do(
    arguments: list[str], error: str, drakkar: Drakkar
) -> None:
    ended = drakkar(*arguments)

    assert (ended.status, ended.out) == (2, "")
    assert ended.error.startswith(error)
    assert "hidden" not in ended.error


def test_a_broken_file_is_wrong_configuration(drakkar: Drakkar) -> None:
    (drakkar.folder / "drakkar.yaml").write_text("ui: {port: [}")

    for arguments in (["run"], ["workers"], ["config"], ["config", "check"]):
        ended = drakkar(*arguments)
        assert (ended.status, ended.out) == (2, "")
        assert ended.error.startswith("drakkar.yaml, line 1: not YAML")


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_full_disk_is_one_line(command: list[str], drakkar: Drakkar) -> None:
    with Path("/dev/full").open("w") as full:
        ended = end_of(drakkar.start(*command, stdout=full))

    assert ended.status == 1
    assert "No space left on device" in ended.error


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_reader_that_leaves_early_is_no_error_to_speak_of(command: list[str], drakkar: Drakkar) -> None:
    process = drakkar.start(*command)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(60) in (0, 1)


@pytest.mark.parametrize("command", ["config", "providers", "--version"])
def test_it_can_run_without_standard_streams(command: str, drakkar: Drakkar) -> None:
    program = Path(sys.executable).with_name("drakkar")
    shell = ["sh", "-c", 'exec "$0" "$1" <&- >&- 2>&-', str(program), command]

    assert subprocess.run(shell, env=drakkar.environ, cwd=drakkar.folder, timeout=60).returncode == 0


def test_what_the_terminal_cannot_show_is_no_error(drakkar: Drakkar) -> None:
    ended = drakkar("config", "--set", "worker_name=名", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert ended.status == 0
    assert "worker_name: \\u540d\n" in ended.out


def test_nothing_heavy_is_imported_before_the_handlers_of_signals(drakkar: Drakkar) -> None:
    script = (
        "import sys; before = set(sys.modules); import drakkar.cli; print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    modules = set(found.split())
    ours = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours == {"drakkar", "drakkar.cli", "drakkar.cli._entry"}
    assert not modules & {"argparse", "asyncio", "importlib.metadata", "logging", "typing"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_none_of_the_others(command: str, drakkar: Drakkar) -> None:
    script = (
        f"import sys; from drakkar.cli._parser import parse; parse(['{command}', *sys.argv[1:]])\n"
        "print(*(name for name in sys.modules if name.startswith('drakkar.cli.')))"
    )
    extra = ["none"] if command == "testkit" else []
    arguments = [sys.executable, "-c", script, *extra]
    found = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.split()

    commands = {name.removeprefix("drakkar.cli.") for name in found} & set(COMMANDS)
    assert commands == {command}


def test_the_log_levels_to_choose_are_those_that_there_are(drakkar: Drakkar) -> None:
    assert f"{{{','.join(LOG_LEVELS)}}}" in drakkar("run", "--help").out


def test_an_unexpected_error_is_one_line_and_a_trace_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(_entry, "_run", fail)
    monkeypatch.setattr(_entry, "_leave_on_signals", lambda _: None)
    monkeypatch.setattr(_entry, "forget_output", lambda: None)

    assert _entry.main(["run"]) == 1
    message = "failed unexpectedly: RuntimeError: two lines; set DK_DEBUG=1 to see where"
    assert capsys.readouterr().err == f"drakkar: {message}\n"
    monkeypatch.setenv("DK_DEBUG", "1")
    with pytest.raises(RuntimeError):
        _entry.main(["run"])

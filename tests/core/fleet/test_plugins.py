"""Choosing a provider by name, over distributions that are laid out on the path as an installer does it.

`tests/build/test_plugin_package.py` does the same with packages that are really built and installed.
"""

import asyncio
import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from drakkar.errors import ConfigError
from drakkar.fleet import plugins
from drakkar.fleet.none import NoRegistry, make_registry
from drakkar.fleet.plugins import PUBLISHED_PROVIDERS, load_provider, make_provider
from support.log import RecordingLogger

INVALID = "fleet_registry_entry_point_invalid"
LOAD_FAILED = "fleet_registry_entry_point_load_failed"
SCAN_FAILED = "fleet_registry_entry_point_scan_failed"

SOUND = "from drakkar.fleet.none import make_registry\n"

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lays a distribution out in a folder of the path; its one module is named after it."""

    def lay_out(
        distribution: str,
        entry_points: Mapping[str, str] | str,
        source: str = SOUND,
        *,
        folder: str = "site",
        version: str = "1.0",
    ) -> Path:
        site = tmp_path / folder
        metadata = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        if not isinstance(entry_points, str):
            rows = "".join(f"{name} = {target}\n" for name, target in entry_points.items())
            entry_points = f"[{plugins.GROUP}]\n{rows}"
        (metadata / "entry_points.txt").write_text(entry_points)
        (site / f"{module_of(distribution)}.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        return metadata

    loaded = set(sys.modules)
    yield lay_out
    for name in set(sys.modules) - loaded:
        if name.startswith("plugin_"):
            del sys.modules[name]


@pytest.fixture
def logger() -> RecordingLogger:
    return RecordingLogger()


def module_of(distribution: str) -> str:
    return "plugin_" + re.sub(r"\W", "_", distribution)


def target(distribution: str, name: str = "make_registry") -> str:
    return f"{module_of(distribution)}:{name}"


def is_loaded(distribution: str) -> bool:
    return module_of(distribution) in sys.modules


def refusal(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "fleet.registry.provider" in message
    return message


# Which one is chosen.


def test_none_is_always_there(logger: RecordingLogger) -> None:
    assert load_provider("none", logger) is make_registry
    assert logger.lines == []


def test_it_imports_the_chosen_name_alone(install: Install, logger: RecordingLogger) -> None:
    install("harbour", {"harbour": target("harbour")})
    install("broken", {"broken": target("broken")}, "raise SystemExit('imported')")
    assert load_provider("harbour", logger) is make_registry
    assert is_loaded("harbour")
    assert not is_loaded("broken")
    assert logger.lines == []


@pytest.mark.parametrize("ours", ["drakkar-filesystem", "Drakkar_Filesystem", "drakkar-core"])
@pytest.mark.parametrize("foreign", ["a-foreign", "zz-foreign", "drakkar-filesystem-fork"])
def test_a_foreign_distribution_wins_over_ours_without_a_word(
    install: Install, logger: RecordingLogger, ours: str, foreign: str
) -> None:
    install(ours, {"filesystem": target(ours)}, "raise ImportError('not this one')")
    install(foreign, {"filesystem": target(foreign)})
    assert load_provider("filesystem", logger) is make_registry
    assert not is_loaded(ours)
    assert logger.lines == []


def test_a_package_of_ours_is_foreign_under_another_name(install: Install, logger: RecordingLogger) -> None:
    install("drakkar-static", {"filesystem": target("drakkar-static")})
    install("drakkar-filesystem", {"filesystem": target("drakkar-filesystem")}, "raise ImportError")
    assert load_provider("filesystem", logger) is make_registry
    assert is_loaded("drakkar-static")


@pytest.mark.parametrize(
    "order", [("Alpha.Twin", "beta_twin", "zulu-twin"), ("zulu-twin", "beta_twin", "Alpha.Twin")]
)
def test_of_several_foreign_ones_the_first_name_wins_and_the_others_are_logged(
    install: Install, logger: RecordingLogger, order: tuple[str, ...]
) -> None:
    for distribution in order:
        install(distribution, {"twin": target(distribution)}, folder=distribution)
    load_provider("twin", logger)
    assert [is_loaded(name) for name in ("Alpha.Twin", "beta_twin", "zulu-twin")] == [True, False, False]
    reason = "alpha-twin registers this provider, too, and comes first"
    assert logger.lines == [
        ("warning", INVALID, {"provider": "twin", "distribution": left_out, "reason": reason})
        for left_out in ("beta-twin", "zulu-twin")
    ]


def test_a_second_copy_of_one_distribution_is_no_conflict(install: Install, logger: RecordingLogger) -> None:
    install("harbour", {"harbour": target("harbour")}, "raise ImportError", folder="old", version="0.9")
    install("Harbour", {"harbour": target("Harbour")}, folder="new")
    assert load_provider("harbour", logger) is make_registry
    assert logger.lines == []


def test_the_newer_copy_that_dropped_the_name_hides_the_older_one(
    install: Install, logger: RecordingLogger
) -> None:
    install("harbour", {"harbour": target("harbour")}, folder="old", version="0.9")
    install("harbour", {"port": target("harbour")}, folder="new")
    assert "no such provider" in refusal(load_provider, "harbour", logger)


# What cannot be loaded.


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (
            "import a_module_that_is_not_there",
            "ModuleNotFoundError: No module named 'a_module_that_is_not_there'",
        ),
        ("raise ImportError('no lib')", "ImportError: no lib"),
        ("raise RuntimeError('one\\n  two')", "RuntimeError: one two"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("def make_registry(", "SyntaxError: "),
        ("", "AttributeError: module 'plugin_harbour' has no attribute 'make_registry'"),
    ],
)
def test_what_fails_to_load_is_logged_and_named_in_the_error(
    install: Install, logger: RecordingLogger, source: str, error: str
) -> None:
    install("harbour", {"harbour": target("harbour")}, source)
    message = refusal(load_provider, "harbour", logger)
    assert message.startswith(
        f"fleet.registry.provider is 'harbour', which is installed but cannot be loaded: {error}"
    )
    ((level, event, fields),) = logger.lines
    assert (level, event) == ("warning", LOAD_FAILED)
    assert fields == {"provider": "harbour", "distribution": "harbour", "error": fields["error"]}
    assert fields["error"].startswith(error)
    assert "\n" not in fields["error"]


@pytest.mark.parametrize("value", ["7", "'text'", "None", "{}"])
def test_a_target_that_is_not_callable_is_logged_as_invalid(
    install: Install, logger: RecordingLogger, value: str
) -> None:
    install("harbour", {"harbour": target("harbour")}, f"make_registry = {value}")
    message = refusal(load_provider, "harbour", logger)
    assert "plugin_harbour:make_registry is not callable" in message
    ((level, event, fields),) = logger.lines
    assert (level, event) == ("warning", INVALID)
    assert (fields["provider"], fields["distribution"]) == ("harbour", "harbour")
    assert fields["reason"] in message


def test_an_interrupt_while_loading_is_not_held_back(install: Install, logger: RecordingLogger) -> None:
    install("harbour", {"harbour": target("harbour")}, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_provider("harbour", logger)


def test_the_next_candidate_takes_the_place_of_one_that_fails(
    install: Install, logger: RecordingLogger
) -> None:
    install("alpha", {"filesystem": target("alpha")}, "raise ImportError('no lib')")
    install("beta", {"filesystem": target("beta")}, "make_registry = 7")
    install("drakkar-filesystem", {"filesystem": target("drakkar-filesystem")})
    assert load_provider("filesystem", logger) is make_registry
    assert is_loaded("drakkar-filesystem")
    assert [(event, fields["distribution"]) for _, event, fields in logger.lines] == [
        (LOAD_FAILED, "alpha"),
        (INVALID, "beta"),
    ]


def test_only_those_after_the_chosen_one_are_left_out(install: Install, logger: RecordingLogger) -> None:
    install("alpha", {"twin": target("alpha")}, "raise ImportError('no lib')")
    install("beta", {"twin": target("beta")})
    install("gamma", {"twin": target("gamma")})
    load_provider("twin", logger)
    assert [(event, fields["distribution"]) for _, event, fields in logger.lines] == [
        (LOAD_FAILED, "alpha"),
        (INVALID, "gamma"),
    ]


# What cannot be scanned.


@pytest.mark.parametrize("content", [b"[group]\nname\n", b"\xff\xfe[", b"[group]\nname = \n"])
def test_damaged_metadata_of_one_distribution_hides_no_other(
    install: Install, logger: RecordingLogger, content: bytes
) -> None:
    metadata = install("damaged", {})
    (metadata / "entry_points.txt").write_bytes(content)
    install("harbour", {"harbour": target("harbour")})
    assert load_provider("harbour", logger) is make_registry
    assert {event for _, event, _ in logger.lines} <= {SCAN_FAILED}
    assert {fields["distribution"] for _, _, fields in logger.lines} <= {"damaged"}


def test_entry_points_that_cannot_be_read_are_logged(install: Install, logger: RecordingLogger) -> None:
    metadata = install("damaged", {})
    (metadata / "entry_points.txt").write_bytes(b"\xff\xfe")
    load_provider("none", logger)
    ((level, event, fields),) = logger.lines
    assert (level, event, fields["distribution"]) == ("warning", SCAN_FAILED, "damaged")
    assert fields["error"].startswith("UnicodeDecodeError: ")


def test_a_finder_that_raises_is_logged_and_the_error_is_still_one_line(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger
) -> None:
    readable = importlib.metadata.distribution("pytest")

    class Finder:
        @staticmethod
        def find_spec(*arguments: object) -> None:
            return None

        @staticmethod
        def find_distributions(context: object) -> Iterator[importlib.metadata.Distribution]:
            yield readable
            raise RuntimeError("the finder\nfailed")

    monkeypatch.setattr(sys, "meta_path", [Finder])
    message = refusal(load_provider, "none", logger)
    assert message.endswith("(providers that exist: none at all)")
    assert logger.lines == [
        ("warning", SCAN_FAILED, {"distribution": "", "error": "RuntimeError: the finder failed"})
    ]


def test_what_an_uninstall_left_behind_is_passed_over(install: Install, logger: RecordingLogger) -> None:
    metadata = install("ghost", {"ghost": target("ghost")})
    (metadata / "METADATA").unlink()
    assert "no such provider" in refusal(load_provider, "ghost", logger)
    assert logger.lines == []


# What is missing.


def existing() -> str:
    """How a message lists the providers of the environment that runs the tests."""
    return f"(providers that exist: {', '.join(sorted({info.name for info in plugins.scan()}))})"


def test_a_published_name_that_is_not_installed_tells_what_to_install(
    install: Install, monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger
) -> None:
    install("harbour", {"harbour": target("harbour")})
    monkeypatch.setattr(plugins, "PUBLISHED_PROVIDERS", (*PUBLISHED_PROVIDERS, "kraken"))
    assert refusal(load_provider, "kraken", logger) == (
        "fleet.registry.provider is 'kraken', which is not installed: pip install drakkar-kraken "
        f"{existing()}"
    )
    assert "harbour" in existing()
    assert logger.lines == []


def test_the_published_names_are_those_of_the_design() -> None:
    assert PUBLISHED_PROVIDERS == ("consul", "etcd", "filesystem", "redis", "static")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("noen", ", did you mean 'none'?"),
        ("habour", ", did you mean 'harbour'?"),
        ("rediss", ", did you mean 'redis'?"),
        ("zookeeper", ""),
        ("", ""),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(
    install: Install, logger: RecordingLogger, name: str, hint: str
) -> None:
    install("harbour", {"harbour": target("harbour")})
    assert refusal(load_provider, name, logger) == (
        f"fleet.registry.provider is {name!r}, and there is no such provider{hint} {existing()}"
    )


def test_a_name_of_two_lines_makes_an_error_of_one(logger: RecordingLogger) -> None:
    refusal(load_provider, "two\nlines", logger)


# Making one.


class Harbour(NoRegistry):
    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options


def given_factory(monkeypatch: pytest.MonkeyPatch, factory: object) -> None:
    """Make `factory` what the entry point `none` loads."""
    monkeypatch.setattr("drakkar.fleet.none.make_registry", factory)


def make_harbour(options: Mapping[str, Any]) -> Harbour:
    return Harbour(options)


class FactoryObject:
    def __call__(self, options: Mapping[str, Any]) -> Harbour:
        return Harbour(options)


@pytest.mark.parametrize("factory", [Harbour, FactoryObject(), make_harbour])
def test_a_factory_may_be_a_class_an_object_or_a_function(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger, factory: object
) -> None:
    given_factory(monkeypatch, factory)
    options = {"address": "192.0.2.1"}
    provider = make_provider("none", options, logger)
    assert isinstance(provider, Harbour)
    assert provider.options is options


def test_a_name_that_is_missing_cannot_be_made(logger: RecordingLogger) -> None:
    assert "no such provider" in refusal(make_provider, "zookeeper", {}, logger)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("plugin_options.address\n  is missing"), ": plugin_options.address is missing"),
        (KeyError("address"), " cannot be made: KeyError: 'address'"),
        (OSError("no such host"), " cannot be made: OSError: no such host"),
        (SystemExit(1), " cannot be made: SystemExit: 1"),
        (asyncio.CancelledError(), " cannot be made: CancelledError"),
    ],
)
def test_an_error_of_the_factory_is_the_users_to_fix(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger, error: BaseException, shown: str
) -> None:
    def fail(options: Mapping[str, Any]) -> NoRegistry:
        raise error

    given_factory(monkeypatch, fail)
    assert refusal(make_provider, "none", {}, logger) == f"fleet.registry.provider 'none'{shown}"


def test_a_long_error_is_cut(monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger) -> None:
    def fail(options: Mapping[str, Any]) -> NoRegistry:
        raise ValueError("x" * 1_000_000)

    given_factory(monkeypatch, fail)
    assert len(refusal(make_provider, "none", {}, logger)) < 1000


def test_an_interrupt_while_making_is_not_held_back(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger
) -> None:
    def fail(options: Mapping[str, Any]) -> NoRegistry:
        raise KeyboardInterrupt

    given_factory(monkeypatch, fail)
    with pytest.raises(KeyboardInterrupt):
        make_provider("none", {}, logger)


class Half:
    withdraw = "not a method"

    def start(self) -> None: ...
    def publish(self) -> None: ...


@pytest.mark.parametrize(
    ("factory", "made"),
    [
        (lambda options: Half(), "a Half, which lacks list, withdraw, stop"),
        (lambda options: None, "a NoneType, which lacks start, publish, list, withdraw, stop"),
    ],
)
def test_a_product_that_is_no_provider_is_refused_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger, factory: object, made: str
) -> None:
    given_factory(monkeypatch, factory)
    assert refusal(make_provider, "none", {}, logger) == (
        f"fleet.registry.provider 'none': its factory made {made}"
    )


def test_a_coroutine_function_as_factory_is_refused_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, logger: RecordingLogger
) -> None:
    async def make(options: Mapping[str, Any]) -> NoRegistry:
        return NoRegistry()

    given_factory(monkeypatch, make)
    assert "its factory made a coroutine, which lacks start" in refusal(make_provider, "none", {}, logger)


# Listing them all.


def test_a_scan_shows_every_provider_and_why_one_cannot_be_used(install: Install) -> None:
    install("alpha", {"twin": target("alpha"), "raises": target("alpha", "nothing")}, version="1.5")
    install("beta", {"twin": target("beta"), "number": "sys:maxsize"}, version="2.0")
    found = [info for info in plugins.scan() if info.distribution in ("alpha", "beta")]
    assert [(info.name, info.distribution, info.version, info.chosen) for info in found] == [
        ("number", "beta", "2.0", False),
        ("raises", "alpha", "1.5", False),
        ("twin", "alpha", "1.5", True),
        ("twin", "beta", "2.0", False),
    ]
    assert [info.error for info in found] == [
        "sys:maxsize is not callable, but int",
        "AttributeError: module 'plugin_alpha' has no attribute 'nothing'",
        None,
        None,
    ]


def test_a_scan_chooses_as_loading_does(install: Install) -> None:
    install("alpha", {"filesystem": target("alpha")}, "raise ImportError")
    install("beta", {"filesystem": target("beta")})
    install("drakkar-filesystem", {"filesystem": target("drakkar-filesystem")})
    found = [info for info in plugins.scan() if info.name == "filesystem"]
    assert [(info.distribution, info.chosen, info.error) for info in found] == [
        ("alpha", False, "ImportError"),
        ("beta", True, None),
        ("drakkar-filesystem", False, None),
    ]


def test_a_scan_shows_a_distribution_that_cannot_be_read(install: Install) -> None:
    metadata = install("damaged", {})
    (metadata / "entry_points.txt").write_bytes(b"\xff\xfe")
    found = [info for info in plugins.scan() if info.distribution == "damaged"]
    assert [(info.name, info.chosen) for info in found] == [("", False)]
    assert found[0].error is not None
    assert found[0].error.startswith("UnicodeDecodeError: ")


def test_a_scan_has_none_of_core() -> None:
    (info,) = [info for info in plugins.scan() if info.name == "none"]
    assert (info.distribution, info.chosen, info.error) == ("drakkar-core", True, None)
    assert info.version == importlib.metadata.version("drakkar-core")

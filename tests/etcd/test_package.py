"""The package from outside: its factory, and what importing it loads."""

import subprocess
import sys
from importlib.metadata import entry_points

import drakkar_etcd
import pytest
from drakkar_etcd import make_registry
from drakkar_etcd.leases import EtcdLeases
from drakkar_etcd.registry import EtcdRegistry
from drakkar_etcd.testing import Store


def test_the_entry_point_names_the_factory() -> None:
    (point,) = entry_points(group="drakkar.registry_providers", name="etcd")

    assert point.load() is make_registry
    assert drakkar_etcd.__all__ == ["make_registry"]


def test_the_factory_makes_both_halves_outside_of_an_event_loop_with_no_server_there() -> None:
    options = {"endpoints": ["http://127.0.0.1:1"]}

    assert isinstance(make_registry(options), EtcdRegistry)
    assert isinstance(make_registry.lease_backend(options), EtcdLeases)


@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import drakkar_etcd", set()),
        (
            "import drakkar_etcd; drakkar_etcd.make_registry({})",
            {"drakkar.fleet.card", "drakkar.fleet.provider"},
        ),
    ],
)
def test_importing_it_loads_nothing_of_core_but_what_the_registry_half_needs(
    statement: str, loaded: set[str]
) -> None:
    script = f"import sys; {statement}; print([name for name in sys.modules if name.startswith('drakkar.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert set(eval(done.stdout)) - {"drakkar.fleet"} == loaded


def test_a_store_refuses_options_that_do_not_hold() -> None:
    with pytest.raises(ValueError, match=r"fleet\.registry\.etcd\.prefix is empty"):
        Store({"prefix": ""})

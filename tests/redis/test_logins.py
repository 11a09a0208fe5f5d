"""Users, passwords and certificates; and servers that are not what was configured."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from drakkar.fleet.provider import ProviderConfigError
from drakkar.fleet.testkit import make_card
from drakkar.fleet.testkit import make_context as make_card_context
from drakkar.leases.backend import Held, Lease
from drakkar.leases.testkit import make_context
from drakkar_redis import _card_scripts, _lease_scripts, _rights
from drakkar_redis._keys import Keys
from drakkar_redis._script import Script
from drakkar_redis.leases import RedisLeases
from drakkar_redis.registry import RedisRegistry
from support.certificates import Authority
from support.log import RecordingLogger
from support.markdown import Page
from support.redis_servers import RedisServer, redis_server
from support.repository import ROOT
from support.waiting import until

SECRET = "hunter2"
KEYS = Keys("drakkar")


def least_rights() -> list[str]:
    """The rule of the documentation for a user that may do what a worker does and nothing else."""
    blocks = [block for block in Page(ROOT / "docs" / "redis.md").blocks() if "ACL SETUSER" in block.text]
    words = blocks[0].text.replace("\\\n", " ").split()
    return [word.strip("'") for word in words[words.index("SETUSER") :]]


@pytest.fixture
def worker_user(server: RedisServer) -> Iterator[str]:
    """A user of the documentation; the password is `hunter2`."""
    _, name, *rules = least_rights()
    server.command(
        "ACL", "SETUSER", name, *(f">{SECRET}" if rule.startswith(">") else rule for rule in rules)
    )
    yield name
    server.command("ACL", "DELUSER", name)


@pytest.fixture
async def stopping() -> AsyncIterator[list[RedisRegistry | RedisLeases]]:
    """What is put in here is stopped in the end."""
    made: list[RedisRegistry | RedisLeases] = []
    yield made
    for each in made:
        await each.stop()


async def everything_works(options: dict[str, Any], stopping: list[RedisRegistry | RedisLeases]) -> None:
    """Cards, leases, listing, waiting and being woken, with these options."""
    log = RecordingLogger()
    provider, one, two = RedisRegistry(options), RedisLeases(options), RedisLeases(options)
    stopping += [provider, one, two]
    await provider.start(make_card_context("worker-1", logger=log))
    assert log.lines == []
    await provider.publish(make_card("worker-1"))
    assert [peer.card["worker"] for peer in await provider.list()] == ["worker-1"]
    await provider.withdraw("worker-1", make_card("worker-1")["instance"])
    assert await provider.list() == []
    for worker, backend in (("worker-1", one), ("worker-2", two)):
        await backend.start(make_context(worker, logger=log))
    lease = await one.acquire("gc-leader")
    assert isinstance(lease, Lease)
    assert isinstance(await two.acquire("gc-leader"), Held)
    assert len((await one.renew([lease])).kept) == 1
    assert len(await one.list()) == 1
    await two.wait(["gc-leader"], 0.01)
    await until(lambda: two._wakeups.hears)
    await one.release("gc-leader")
    assert isinstance(await two.acquire("gc-leader"), Lease)
    await two.release("gc-leader")
    assert log.lines == []


async def test_the_least_rights_of_the_documentation_are_enough(
    server: RedisServer, worker_user: str, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    options = {"url": server.url, "username": worker_user, "password": SECRET}

    await everything_works(options, stopping)


@pytest.mark.parametrize(
    "words",
    [("FLUSHALL",), ("KEYS", "*"), ("GET", "another"), ("SET", "another", "x"), ("CONFIG", "GET", "*")],
)
async def test_the_least_rights_allow_nothing_else(
    words: tuple[str, ...], server: RedisServer, worker_user: str
) -> None:
    other = RedisServer.__new__(RedisServer)
    other.port, other.login = server.port, {"username": worker_user, "password": SECRET}

    with pytest.raises(Exception, match="no permissions"):
        other.command(*words)


WRONG: list[Callable[[RedisServer], dict[str, Any]]] = [
    lambda server: {"url": server.url, "username": "worker", "password": SECRET + "-wrong"},
    lambda server: {"url": f"redis://nobody:{SECRET}@127.0.0.1:{server.port}"},
    lambda server: {"url": server.url, "password": SECRET},
]


@pytest.mark.parametrize("options_of", WRONG)
async def test_a_login_that_is_refused_stops_the_start_in_one_line(
    options_of: Callable[[RedisServer], dict[str, Any]],
    server: RedisServer,
    stopping: list[RedisRegistry | RedisLeases],
) -> None:
    server.command("CONFIG", "SET", "requirepass", "something-else")
    server.login = {"password": "something-else"}
    try:
        provider, backend = RedisRegistry(options_of(server)), RedisLeases(options_of(server))
        stopping += [provider, backend]
        with pytest.raises(
            ProviderConfigError, match=r"^fleet\.registry\.redis\.username, password: [^\n]+$"
        ) as one:
            await provider.start(make_card_context("worker-1"))
        with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.username, password: [^\n]+$") as two:
            await backend.start(make_context("worker-1"))
    finally:
        server.command("CONFIG", "SET", "requirepass", "")
        server.login = {}
    for refusal in (one, two):
        assert SECRET not in f"{refusal.value}{refusal.value.__cause__}{refusal.value.__context__}"


async def test_a_server_that_wants_a_login_stops_the_start(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    server.command("CONFIG", "SET", "requirepass", "something-else")
    server.login = {"password": "something-else"}
    try:
        provider = RedisRegistry({"url": server.url})
        stopping.append(provider)
        with pytest.raises(ProviderConfigError, match=r"^fleet\.registry\.redis\.username, password: "):
            await provider.start(make_card_context("worker-1"))
    finally:
        server.command("CONFIG", "SET", "requirepass", "")
        server.login = {}


async def test_a_user_without_the_rights_stops_the_start(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    server.command("ACL", "SETUSER", "poor", "on", f">{SECRET}", "~*", "+ping")
    provider = RedisRegistry({"url": server.url, "username": "poor", "password": SECRET})
    stopping.append(provider)

    with pytest.raises(ProviderConfigError, match=r"the user lacks \+eval;"):
        await provider.start(make_card_context("worker-1"))

    server.command("ACL", "DELUSER", "poor")


@pytest.fixture
def user(server: RedisServer) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes a user by these rules, and returns the options to be it."""

    def make(*rules: str) -> dict[str, Any]:
        server.command("ACL", "SETUSER", "poor", "on", f">{SECRET}", *rules)
        return {"url": server.url, "username": "poor", "password": SECRET}

    yield make
    server.command("ACL", "DELUSER", "poor")


async def refusal_of(
    options: dict[str, Any], stopping: list[RedisRegistry | RedisLeases], half: str = "both"
) -> str:
    """What the registry's start says, which stops the worker; the lease backend says the like."""
    provider, backend = RedisRegistry(options), RedisLeases(options)
    stopping += [provider, backend]
    said = []
    if half != "leases":
        with pytest.raises(ProviderConfigError, match=r"^fleet\.registry\.redis\.[^\n]+$") as one:
            await provider.start(make_card_context("worker-1"))
        said.append(str(one.value))
    if half != "cards":
        with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.[^\n]+$") as two:
            await backend.start(make_context("worker-1"))
        said.append(str(two.value))
    assert SECRET not in str(said)
    return "\n".join(said)


async def test_a_user_who_may_not_run_what_the_scripts_run_stops_the_start(
    user: Callable[..., dict[str, Any]], stopping: list[RedisRegistry | RedisLeases]
) -> None:
    options = user("~*", "-@all", "+eval", "+evalsha", "+ping", "+select", "+get", "+hset")

    said = await refusal_of(options, stopping)

    for line in said.splitlines():
        assert line.startswith("fleet.registry.redis.username, password: the user lacks +time +pttl ")
        assert line.endswith("the documentation of the provider lists the rights that its user needs")
    assert "+get " not in said


@pytest.mark.parametrize(
    ("half", "command"),
    [(half, command.lower()) for half in ("cards", "leases") for command in getattr(_rights, half.upper())],
)
async def test_each_right_that_lacks_is_named(
    half: str,
    command: str,
    user: Callable[..., dict[str, Any]],
    server: RedisServer,
    stopping: list[RedisRegistry | RedisLeases],
) -> None:
    options = user("~*", "+@all", f"-{command}")

    said = await refusal_of(options, stopping, half)

    assert f"the user lacks +{command};" in said
    assert server.command("KEYS", "*") == []


@pytest.mark.parametrize("command", ["eval", "evalsha"])
async def test_the_right_to_send_a_script_is_tried_though_the_server_knows_the_scripts(
    command: str,
    user: Callable[..., dict[str, Any]],
    server: RedisServer,
    stopping: list[RedisRegistry | RedisLeases],
) -> None:
    """Else all would go well until the server forgets them, and no lease could be renewed from then on."""
    await everything_works({"url": server.url}, stopping)

    said = await refusal_of(user("~*", "&*", "+@all", f"-{command}"), stopping)

    for line in said.splitlines():
        assert line.startswith("fleet.registry.redis.username, password: ")
        assert f"the user lacks +{command};" in line


async def test_the_rights_of_leases_are_not_asked_of_who_keeps_cards(
    user: Callable[..., dict[str, Any]], stopping: list[RedisRegistry | RedisLeases]
) -> None:
    options = user("~*", "+@all", *(f"-{each.lower()}" for each in set(_rights.LEASES) - set(_rights.CARDS)))
    provider, log = RedisRegistry(options), RecordingLogger()
    stopping.append(provider)

    await provider.start(make_card_context("worker-1", logger=log))
    await provider.publish(make_card("worker-1"))

    assert log.lines == []
    await refusal_of(options, stopping, "leases")


def test_every_command_of_the_scripts_is_tried() -> None:
    scripts = {_rights.CARDS: _card_scripts, _rights.LEASES: _lease_scripts}
    for tried, module in scripts.items():
        sources = "".join(each.source for each in vars(module).values() if isinstance(each, Script))
        used = set(re.findall(r"redis\.p?call\('(\w+)'", sources))
        assert set(tried) == used - {"PUBLISH"}  # without which all works


async def test_keys_that_the_user_may_not_touch_stop_the_start_and_name_the_prefix(
    user: Callable[..., dict[str, Any]], stopping: list[RedisRegistry | RedisLeases]
) -> None:
    options = user("~{drakkar}:*", "+@all") | {"prefix": "search fleet"}

    said = await refusal_of(options, stopping)

    for line in said.splitlines():
        assert line.startswith("fleet.registry.redis.prefix: ")
        assert "~{search%20fleet}:*" in line


async def test_a_database_that_there_is_not_stops_the_start(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    said = await refusal_of({"url": f"redis://127.0.0.1:{server.port}/99"}, stopping)

    for line in said.splitlines():
        assert line.startswith("fleet.registry.redis.url: ")
        assert "has no database 99" in line


async def test_a_right_that_is_taken_away_later_is_told_in_each_error(
    user: Callable[..., dict[str, Any]], stopping: list[RedisRegistry | RedisLeases]
) -> None:
    provider = RedisRegistry(user("~*", "+@all"))
    stopping.append(provider)
    await provider.start(make_card_context("worker-1"))
    user("-hset")

    with pytest.raises(ConnectionError, match=r"refuses a command: .* lists the rights") as failure:
        await provider.publish(make_card("worker-1"))

    assert "script:" not in str(failure.value)
    assert str(failure.value).endswith("; see fleet.registry.redis.username, password")


async def test_a_single_server_taken_for_a_cluster_stops_the_start(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    provider = RedisRegistry({"url": server.url, "cluster": True})
    stopping.append(provider)

    with pytest.raises(
        ProviderConfigError, match=r"^fleet\.registry\.redis\.cluster: .* is not part of a Cluster$"
    ):
        await provider.start(make_card_context("worker-1"))


async def test_a_server_that_is_down_at_the_start_is_logged_and_asked_later(
    tmp_path: Path, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    server = RedisServer(tmp_path)
    log = RecordingLogger()
    provider = RedisRegistry({"url": f"redis://:{SECRET}@127.0.0.1:{server.port}"})
    backend = RedisLeases({"url": server.url})
    stopping += [provider, backend]

    await provider.start(make_card_context("worker-1", logger=log))

    assert log.level_of("fleet_redis_not_reached") == "warning"
    assert str(server.port) in log.named("fleet_redis_not_reached")[0]["error"]
    assert SECRET not in str(log.lines)
    with pytest.raises(ConnectionError, match=str(server.port)):
        await backend.start(make_context("worker-1"))
    provider = RedisRegistry({"url": server.url})
    stopping.append(provider)
    await provider.start(make_card_context("worker-1"))
    try:
        server.process.start()
        await provider.publish(make_card("worker-1"))
        await backend.start(make_context("worker-1"))
        assert isinstance(await backend.acquire("gc-leader"), Lease)
    finally:
        server.process.kill()


async def test_a_password_shows_in_no_error_of_an_odd_server(
    stopping: list[RedisRegistry | RedisLeases],
) -> None:
    """Old servers and proxies quote the command that they do not know, password and all."""
    import asyncio

    async def quote(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(f"-ERR unknown command `AUTH`, with args beginning with: `{SECRET}`, \r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(quote, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    log = RecordingLogger()
    provider = RedisRegistry({"url": f"redis://:{SECRET}@127.0.0.1:{port}"})
    stopping.append(provider)
    try:
        await provider.start(make_card_context("worker-1", logger=log))
        with pytest.raises(ConnectionError, match="unknown command") as failure:
            await provider.list()
    finally:
        server.close()
        await server.wait_closed()
    shown = str(log.lines) + str(failure.value) + repr(failure.value.__cause__)
    assert SECRET not in shown
    assert failure.value.__suppress_context__


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that wants a client's certificate."""
    certificate, client = authority.issue(), authority.issue(common_name="operator")
    arguments = (
        *("--tls-cert-file", certificate.cert_file, "--tls-key-file", certificate.key_file),
        *("--tls-ca-cert-file", authority.ca_file, "--tls-auth-clients", "yes"),
    )
    login = {
        "ssl": True,
        "ssl_ca_certs": str(authority.ca_file),
        "ssl_certfile": str(client.cert_file),
        "ssl_keyfile": str(client.key_file),
    }
    with redis_server(tmp_path_factory.mktemp("tls"), *arguments, tls=True, login=login) as server:
        yield server


def tls_options(server: RedisServer, authority: Authority) -> dict[str, Any]:
    client = authority.issue(common_name="worker-1")
    return {
        "url": f"rediss://localhost:{server.port}",
        "ca_file": str(authority.ca_file),
        "cert_file": str(client.cert_file),
        "key_file": str(client.key_file),
    }


async def test_it_works_over_tls_with_a_certificate_of_its_own(
    tls_server: RedisServer, authority: Authority, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    await everything_works(tls_options(tls_server, authority), stopping)


@pytest.mark.parametrize(
    ("missing", "told"), [(("cert_file", "key_file"), "cert_file"), (("ca_file",), "ca_file")]
)
async def test_it_trusts_nobody_and_is_trusted_by_nobody_without_certificates(
    missing: tuple[str, ...],
    told: str,
    tls_server: RedisServer,
    authority: Authority,
    stopping: list[RedisRegistry | RedisLeases],
) -> None:
    options = tls_options(tls_server, authority)
    backend = RedisLeases({key: value for key, value in options.items() if key not in missing})
    stopping.append(backend)

    with pytest.raises(ConnectionError, match=rf"; (if it wants a certificate, )?see .*\.{told}$"):
        await backend.start(make_context("worker-1"))


async def test_a_certificate_of_another_host_is_refused(
    authority: Authority, tmp_path: Path, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    certificate = authority.issue("elsewhere.example.org")
    arguments = (
        *("--tls-cert-file", certificate.cert_file, "--tls-key-file", certificate.key_file),
        *("--tls-ca-cert-file", authority.ca_file, "--tls-auth-clients", "no"),
    )
    login = {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False}
    with redis_server(tmp_path, *arguments, tls=True, login=login) as server:
        backend = RedisLeases({"url": f"rediss://localhost:{server.port}", "ca_file": str(authority.ca_file)})
        stopping.append(backend)

        with pytest.raises(ConnectionError, match=r"(?i)certificate"):
            await backend.start(make_context("worker-1"))


@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
@pytest.mark.parametrize("content", [None, "garbage"])
def test_a_certificate_that_cannot_be_loaded_is_refused_with_its_option_and_path(
    content: str | None, key: str, authority: Authority, tmp_path: Path
) -> None:
    client, file = authority.issue(common_name="worker-1"), tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)
    options = {"url": "rediss://localhost:1", "ca_file": str(authority.ca_file)}
    options |= {"cert_file": str(client.cert_file), "key_file": str(client.key_file), key: str(file)}

    for make in (RedisRegistry, RedisLeases):
        with pytest.raises(ValueError, match=r"^fleet\.registry\.redis\.[^\n]+$") as refusal:
            make(options)
        assert key in str(refusal.value)
        assert str(file) in str(refusal.value)
        if content is None:
            assert f"redis.{key} cannot be used: {file}: No such file" in str(refusal.value)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    authority: Authority, tmp_path: Path
) -> None:
    """In a process with a terminal of its own, since that is where it would be asked for."""
    client = authority.issue(common_name="worker-1")
    key = tmp_path / "encrypted.key"
    key.write_bytes(
        load_pem_private_key(client.key_file.read_bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
        )
    )
    options = {"url": "rediss://localhost:1", "cert_file": str(client.cert_file), "key_file": str(key)}
    program = f"from drakkar_redis.registry import RedisRegistry\nRedisRegistry({options!r})\n"
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdin=theirs,
            capture_output=True,
            start_new_session=True,
            timeout=60,
            text=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert ended.stderr.splitlines()[-1] == (
        f"ValueError: fleet.registry.redis.key_file cannot be used: {key}: it is encrypted; "
        "give a key without a passphrase"
    )


async def test_it_works_over_a_socket(tmp_path: Path, stopping: list[RedisRegistry | RedisLeases]) -> None:
    with redis_server(tmp_path, "--unixsocket", tmp_path / "redis.sock"):
        await everything_works({"url": f"unix://{tmp_path / 'redis.sock'}?db=3"}, stopping)


async def test_databases_of_one_server_are_apart(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    one, two = (RedisRegistry({"url": f"redis://127.0.0.1:{server.port}/{db}"}) for db in (1, 2))
    stopping += [one, two]
    for provider in (one, two):
        await provider.start(make_card_context("worker-1"))
    await one.publish(make_card("worker-1"))

    assert (len(await one.list()), len(await two.list())) == (1, 0)


async def test_a_wait_is_over_a_connection_of_its_own(
    server: RedisServer, stopping: list[RedisRegistry | RedisLeases]
) -> None:
    backend = RedisLeases({"url": server.url})
    stopping.append(backend)
    await backend.start(make_context("worker-1"))

    await backend.wait([], 0.01)

    await until(lambda: server.command("PUBSUB", "NUMSUB", KEYS.released)[1] == 1)
    assert server.info("connected_clients") == 3  # the one that asks is the third

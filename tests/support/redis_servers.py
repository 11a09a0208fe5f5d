"""Redis servers of one test: single ones, Sentinels, a Cluster, with TLS or users."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import redis
from support.servers import START_SECONDS, ServerProcess, free_ports

QUIET: Final = ("--save", "", "--appendonly", "no", "--loglevel", "notice")
"""Without persistence: a restart loses the data."""


class RedisServer:
    """One `redis-server`. `login` are arguments for the client that tests look with."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        port: int | None = None,
        login: Mapping[str, Any] | None = None,
        tls: bool = False,
    ) -> None:
        self.port = free_ports(1)[0] if port is None else port
        self.login = dict(login or {})
        listen = ("--port", "0", "--tls-port", str(self.port)) if tls else ("--port", str(self.port))
        self.process = ServerProcess(
            "redis-server",
            [*listen, "--bind", "127.0.0.1", "--dir", str(folder), *QUIET, *arguments],
            folder,
            lambda: self.command("PING") is not None,
        )

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> "redis.Redis":
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=5, protocol=2, **self.login)

    def command(self, *words: str | bytes | int) -> Any:
        """What an operator types; the answer as it comes."""
        with self.client() as client:
            return cast("Any", client.execute_command(*words))

    def info(self, key: str) -> Any:
        with self.client() as client:
            found: Any = client.info()
            return found.get(key)

    def replicate(self, master: "RedisServer") -> None:
        """Become a replica of `master`, in step with it."""
        self.command("REPLICAOF", "127.0.0.1", master.port)
        wait_until(lambda: self.info("master_link_status") == "up", "replicating")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < until, f"{what} did not happen in {START_SECONDS:g} s"
        time.sleep(0.02)


@contextmanager
def redis_server(folder: Path, *arguments: str | Path, **more: Any) -> Iterator[RedisServer]:
    """A server that runs; see `RedisServer`."""
    server = RedisServer(folder, *arguments, **more)
    try:
        server.process.start()
        yield server
    finally:
        server.process.kill()


@dataclass
class SentinelGroup:
    """A master, replicas, and Sentinels that fail over after a second."""

    servers: list[RedisServer]
    sentinels: list[ServerProcess] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    service_name: str = "fleet-master"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "sentinels": [f"127.0.0.1:{port}" for port in self.ports],
            "service_name": self.service_name,
        }

    def master(self) -> RedisServer:
        """The server that the first Sentinel names."""
        with redis.Redis(host="127.0.0.1", port=self.ports[0], socket_timeout=5, protocol=2) as client:
            found: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service_name)
        return next(server for server in self.servers if server.port == int(found[1]))

    def replicas(self) -> Sequence[RedisServer]:
        master = self.master()
        return [server for server in self.servers if server is not master]


@contextmanager
def sentinel_group(folder: Path, replicas: int = 1) -> Iterator[SentinelGroup]:
    with ExitStack() as stack:
        servers = [
            stack.enter_context(redis_server(folder / f"server-{number}", "--repl-diskless-sync-delay", "0"))
            for number in range(1 + replicas)
        ]
        for server in servers[1:]:
            server.replicate(servers[0])
        group = SentinelGroup(servers)
        for number, port in enumerate(free_ports(3)):
            group.sentinels.append(stack.enter_context(_sentinel(folder / f"sentinel-{number}", port, group)))
            group.ports.append(port)
        wait_until(lambda: _all_known(group), "the Sentinels knowing each other")
        yield group


@contextmanager
def _sentinel(folder: Path, port: int, group: SentinelGroup) -> Iterator[ServerProcess]:
    folder.mkdir(parents=True)
    name = group.service_name
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {name} 127.0.0.1 {group.servers[0].port} 2\n"
        f"sentinel down-after-milliseconds {name} 1000\n"
        f"sentinel failover-timeout {name} 3000\n"
    )

    def ready() -> bool:
        with redis.Redis(host="127.0.0.1", port=port, socket_timeout=5, protocol=2) as client:
            return bool(client.ping())

    process = ServerProcess("redis-server", [folder / "sentinel.conf", "--sentinel"], folder, ready)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def _all_known(group: SentinelGroup) -> bool:
    for port in group.ports:
        with redis.Redis(host="127.0.0.1", port=port, socket_timeout=5, protocol=2) as client:
            found: Any = client.sentinel_master(group.service_name)
        if (found["num-other-sentinels"], found["num-slaves"]) != (2, len(group.servers) - 1):
            return False
    return True


@dataclass
class ClusterGroup:
    """Three masters, each with `replicas`."""

    servers: list[RedisServer]

    @property
    def options(self) -> dict[str, Any]:
        seeds = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return {"url": f"redis://{seeds}", "cluster": True}

    def owner(self, slot: int) -> RedisServer:
        """Who has `slot`, as the first server that runs sees it."""
        for server in self.servers:
            if server.process.is_running:
                for first, last, (_, port, *_rest), *_replicas in server.command("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(each for each in self.servers if each.port == port)
        raise AssertionError(f"nobody has slot {slot}")


@contextmanager
def cluster_group(folder: Path, replicas: int = 0) -> Iterator[ClusterGroup]:
    with ExitStack() as stack:
        servers = []
        # The port for the members is 10000 higher, unless it is told.
        for number, (port, bus) in enumerate(_pairs(3 * (1 + replicas))):
            options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500")
            more = ("--cluster-port", str(bus), "--repl-diskless-sync-delay", "0")
            servers.append(
                stack.enter_context(redis_server(folder / f"server-{number}", *options, *more, port=port))
            )
        masters = servers[:3]
        for number, server in enumerate(masters):
            first, last = number * 16384 // 3, (number + 1) * 16384 // 3 - 1
            server.command("CLUSTER", "ADDSLOTSRANGE", first, last)
            server.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            bus = int(server.command("CONFIG", "GET", "cluster-port")[1])
            servers[0].command("CLUSTER", "MEET", "127.0.0.1", server.port, bus)
        wait_until(
            lambda: all(_known(server) == len(servers) and _sound(server) for server in servers[:1]),
            "meeting",
        )
        for number, server in enumerate(servers[3:]):
            wait_until(lambda server=server: _known(server) == len(servers), "meeting")  # type: ignore[misc]
            server.command("CLUSTER", "REPLICATE", masters[number % 3].command("CLUSTER", "MYID"))
        wait_until(lambda: all(map(_sound, servers)), "the Cluster being sound")
        for server in servers[3:]:
            wait_until(lambda server=server: server.info("master_link_status") == "up", "replicating")  # type: ignore[misc]
        yield ClusterGroup(servers)


def _pairs(count: int) -> list[tuple[int, int]]:
    ports = free_ports(2 * count)
    return list(zip(ports[:count], ports[count:], strict=True))


def _known(server: RedisServer) -> int:
    return len(server.command("CLUSTER", "NODES").decode().splitlines())


def _sound(server: RedisServer) -> bool:
    return b"cluster_state:ok" in server.command("CLUSTER", "INFO")

"""etcd: one member, three, with TLS, with users."""

import base64
import json
import shutil
import ssl
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from support.certificates import Authority, Certificate
from support.servers import ServerProcess, free_ports, running

PROGRAMS: Final = [name for name in ("etcd", "etcd-3.5") if name == "etcd" or shutil.which(name)]
"""The servers to test with; the second is there where `scripts/install-servers` could get it."""

HEARTBEAT_MS: Final = 100


class Etcd(ServerProcess):
    """One member."""

    def __init__(
        self,
        folder: Path,
        *,
        program: str = "etcd",
        name: str = "member-1",
        ports: Sequence[int] = (),
        cluster: str = "",
        arguments: Sequence[str | Path] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.program = program
        self.port, peer_port = ports or free_ports(2)
        scheme = "http" if tls is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self._tls = tls
        self.data = folder / "data"
        options: dict[str, str | Path] = {
            "name": name,
            "data-dir": self.data,
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster or f"{name}={peer}",
            "heartbeat-interval": str(HEARTBEAT_MS),
            "election-timeout": str(10 * HEARTBEAT_MS),
        }
        given = [f"--{option}={value}" for option, value in options.items()]
        super().__init__(program, [*given, *arguments], folder, self._healthy)

    def call(self, method: str, request: Mapping[str, Any], token: str | None = None) -> dict[str, Any]:
        """Ask it, past everything that is tested. Raises `urllib.error.HTTPError` for a refusal."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
        asked = urllib.request.Request(
            f"{self.endpoint}/v3{method}", json.dumps(request).encode(), headers, method="POST"
        )
        with urllib.request.urlopen(asked, timeout=5, context=self._tls) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def put(self, key: str, value: str | bytes, lease: int = 0) -> None:
        self.call("/kv/put", {"key": b64(key), "value": b64(value), "lease": str(lease)})

    def get(self, key: str) -> dict[str, Any] | None:
        """The key with all that belongs to it, its value decoded; None when there is none."""
        found: list[dict[str, Any]] = self.call("/kv/range", {"key": b64(key)}).get("kvs", [])
        return {**found[0], "value": base64.b64decode(found[0].get("value", ""))} if found else None

    def keys(self, prefix: str) -> list[str]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("/kv/range", {"key": b64(prefix), "range_end": b64(end), "keys_only": True})
        return [base64.b64decode(kv["key"]).decode() for kv in found.get("kvs", [])]

    def delete(self, key: str) -> None:
        self.call("/kv/deleterange", {"key": b64(key)})

    def delete_all(self) -> None:
        self.call("/kv/deleterange", {"key": b64(b"\0"), "range_end": b64(b"\0")})

    def leases(self) -> list[str]:
        return [lease["ID"] for lease in self.call("/lease/leases", {}).get("leases", [])]

    def requests(self, method: str) -> float:
        """How many requests of a kind it has had so far, such as `Range`."""
        with urllib.request.urlopen(f"{self.endpoint}/metrics", timeout=5, context=self._tls) as answer:
            lines = answer.read().decode().splitlines()
        wanted = ("grpc_server_msg_received_total{", f'grpc_method="{method}"')
        return sum(float(line.split()[-1]) for line in lines if all(part in line for part in wanted))

    def revoke(self, lease: int | str) -> None:
        self.call("/lease/revoke", {"ID": str(lease)})

    def revision(self) -> int:
        return int(self.call("/kv/range", {"key": b64("/")})["header"]["revision"])

    def compact(self) -> None:
        """Forget all history."""
        self.call("/kv/compaction", {"revision": str(self.revision()), "physical": True})

    def lose_data(self) -> None:
        """What is left of a stopped one whose disk was lost."""
        shutil.rmtree(self.data)

    def _healthy(self) -> bool:
        with urllib.request.urlopen(f"{self.endpoint}/health", timeout=2, context=self._tls) as answer:
            return bool(json.load(answer)["health"] == "true")


def b64(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


@contextmanager
def single(folder: Path, program: str = "etcd", *arguments: str | Path) -> Iterator[Etcd]:
    server = Etcd(folder, program=program, arguments=arguments)
    with running(server):
        yield server


@contextmanager
def three(folder: Path, program: str = "etcd") -> Iterator[list[Etcd]]:
    """Three members of one cluster."""
    ports = free_ports(6)
    names = [f"member-{number}" for number in (1, 2, 3)]
    cluster = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[3:], strict=True))
    members = [
        Etcd(folder / name, program=program, name=name, ports=[ports[at], ports[at + 3]], cluster=cluster)
        for at, name in enumerate(names)
    ]
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.kill)
            member.start(wait=False)
        for member in members:
            member.wait_ready()
        yield members


@contextmanager
def with_tls(folder: Path, program: str = "etcd") -> Iterator[tuple[Etcd, Authority, Certificate]]:
    """A member that takes only clients with a certificate of its authority; and one such certificate."""
    authority = Authority(folder / "certificates")
    server, client = authority.issue(), authority.issue("worker-1")
    tls = ssl.create_default_context(cafile=authority.ca_file)
    tls.load_cert_chain(client.cert_file, client.key_file)
    arguments = [
        f"--cert-file={server.cert_file}",
        f"--key-file={server.key_file}",
        f"--trusted-ca-file={authority.ca_file}",
        "--client-cert-auth",
    ]
    member = Etcd(folder, program=program, arguments=arguments, tls=tls)
    with running(member):
        yield member, authority, client


@contextmanager
def with_users(folder: Path, prefix: str, program: str = "etcd", *arguments: str) -> Iterator[Etcd]:
    """A member with the users `root` and `fleet`, each with its name as the password; `fleet` may read and
    write below `prefix` alone."""
    with single(folder, program, *arguments) as server:
        add_users(server, prefix)
        yield server


def add_users(server: Etcd, prefix: str) -> None:
    """The same in a member that has none."""
    for user in ("root", "fleet"):
        server.call("/auth/user/add", {"name": user, "password": user})
        server.call("/auth/role/add", {"name": user})
        server.call("/auth/user/grant", {"user": user, "role": user})
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    allowed = {"permType": "READWRITE", "key": b64(prefix), "range_end": b64(end)}
    server.call("/auth/role/grant", {"name": "fleet", "perm": allowed})
    server.call("/auth/enable", {})

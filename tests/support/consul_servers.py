"""Consul: an agent that is its own server, three servers, with rights, with TLS."""

import base64
import json
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from support.certificates import Authority, Certificate
from support.servers import START_SECONDS, ServerProcess, free_ports, running

MANAGEMENT_TOKEN: Final = "11111111-2222-3333-4444-555555555555"
NOWHERE: Final = "00000000-0000-0000-0000-000000000000"
"""An id of no session."""

QUICK_SESSIONS: Final = {"session_ttl_min": "1s"}
"""For a server that lets sessions end sooner than the ten seconds that others insist on."""


class Consul(ServerProcess):
    """One agent that is a server."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "server-1",
        ports: Sequence[int] = (),
        join: Sequence[int] = (),
        servers: int = 1,
        settings: Mapping[str, Any] | None = None,
        tls: ssl.SSLContext | None = None,
        token: str = "",
    ) -> None:
        self.port, self.serf_port, server_port = ports or free_ports(3)
        scheme = "http" if tls is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self.port}"
        self.data = folder / "data"
        self._tls = tls
        self._token = token
        open_port = {"http": -1, "https": self.port} if tls is not None else {"http": self.port}
        config = {
            "node_name": name,
            "data_dir": str(self.data),
            "server": True,
            "bootstrap_expect": servers,
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "retry_join": [f"127.0.0.1:{port}" for port in join],
            "retry_interval": "200ms",
            "leave_on_terminate": False,
            "disable_update_check": True,
            "log_level": "warn",
            "performance": {"raft_multiplier": 1},
            "ports": {
                **open_port,
                "dns": -1,
                "grpc": -1,
                "serf_wan": -1,
                "serf_lan": self.serf_port,
                "server": server_port,
            },
            **(settings or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "config.json"
        file.write_text(json.dumps(config))
        super().__init__("consul", ["agent", f"-config-file={file}"], folder, self._has_leader)

    def call(
        self, method: str, path: str, body: object = None, token: str | None = None, seconds: float = 10
    ) -> Any:
        """Ask it, past everything that is tested. Raises `urllib.error.HTTPError` for a refusal."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        token = self._token if token is None else token
        headers = {"X-Consul-Token": token} if token else {}
        asked = urllib.request.Request(f"{self.address}/v1{path}", data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=seconds, context=self._tls) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def put(self, key: str, value: str | bytes) -> None:
        """An ordinary write: it asks nobody who holds the key."""
        self.call("PUT", f"/kv/{key}", value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> dict[str, Any] | None:
        """The key with all that belongs to it, its value decoded; None when there is none."""
        try:
            [found] = self.call("GET", f"/kv/{key}?consistent")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise
        return {**found, "Value": base64.b64decode(found["Value"] or "")}

    def keys(self, prefix: str) -> list[str]:
        try:
            found: list[str] = self.call("GET", f"/kv/{prefix}?keys")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return []
            raise
        return found

    def delete(self, key: str) -> None:
        self.call("DELETE", f"/kv/{key}")

    def freed_at(self, key: str) -> float:
        """Wait until the session that holds `key` now has lost it; when that was, by `time.monotonic`."""
        [found] = self.call("GET", f"/kv/{key}")
        holder = found["Session"]
        while found.get("Session") == holder:
            [found] = self.call("GET", f"/kv/{key}?index={found['ModifyIndex']}&wait=60s", seconds=90)
        return time.monotonic()

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "/session/list")
        return found

    def destroy(self, session: str) -> None:
        self.call("PUT", f"/session/destroy/{session}")

    def lose_data(self) -> None:
        """What is left of a stopped one whose disk was lost."""
        shutil.rmtree(self.data)

    def is_leader(self) -> bool:
        stats = self.call("GET", "/agent/self", seconds=2)["Stats"]
        return bool(stats["consul"]["leader"] == "true")

    def _has_leader(self) -> bool:
        if not self.call("GET", "/status/leader", seconds=2):
            return False
        # One that was just elected may not yet know the node that a session is to be on.
        made = self.call("PUT", "/session/create", {"Checks": []}, seconds=2)
        self.destroy(made["ID"])
        return True


@contextmanager
def agent(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Consul]:
    server = Consul(folder, settings=settings)
    with running(server):
        yield server


@contextmanager
def three(folder: Path) -> Iterator[list[Consul]]:
    """Three servers of one datacenter."""
    ports = free_ports(9)
    serf = ports[3:6]
    members = [
        Consul(
            folder / f"server-{at + 1}",
            name=f"server-{at + 1}",
            ports=[ports[at], ports[at + 3], ports[at + 6]],
            join=[port for port in serf if port != ports[at + 3]],
            servers=3,
        )
        for at in range(3)
    ]
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.kill)
            member.start(wait=False)
        for member in members:
            member.wait_ready()
        yield members


def leader_of(members: Sequence[Consul]) -> Consul:
    """The one that leads the others; there must be one."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        for member in members:
            try:
                if member.is_running and member.is_leader():
                    return member
            except OSError:
                pass
        time.sleep(0.05)
    raise AssertionError("no server leads")


@contextmanager
def with_tls(folder: Path) -> Iterator[tuple[Consul, Authority, Certificate]]:
    """An agent that takes only clients with a certificate of its authority; and one such certificate."""
    authority = Authority(folder / "certificates")
    server, client = authority.issue(), authority.issue("worker-1")
    tls = ssl.create_default_context(cafile=authority.ca_file)
    tls.load_cert_chain(client.cert_file, client.key_file)
    settings = {
        "ca_file": str(authority.ca_file),
        "cert_file": str(server.cert_file),
        "key_file": str(server.key_file),
        "verify_incoming": True,
    }
    member = Consul(folder, settings=settings, tls=tls)
    with running(member):
        yield member, authority, client


@contextmanager
def with_rights(folder: Path) -> Iterator[Consul]:
    """An agent that takes only who has a token; `token_for` makes one."""
    settings = {
        "acl": {
            "enabled": True,
            "default_policy": "deny",
            "tokens": {"master": MANAGEMENT_TOKEN, "agent": MANAGEMENT_TOKEN},
        }
    }
    member = Consul(folder, settings=settings, token=MANAGEMENT_TOKEN)
    with running(member):
        yield member


def token_for(server: Consul, name: str, rules: str) -> str:
    """A new token with the rights that `rules` give, and no others."""
    server.call("PUT", "/acl/policy", {"Name": name, "Rules": rules})
    made = server.call("PUT", "/acl/token", {"Policies": [{"Name": name}]})
    token: str = made["SecretID"]
    return token

"""Certificates for servers and clients of one test, of an authority that nobody else knows."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificate:
    cert_file: Path
    key_file: Path


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))

    def issue(self, *names: str, common_name: str | None = None) -> Certificate:
        """For a server or client of these names and addresses; `127.0.0.1` and `localhost` without any."""
        made = self._authority.issue_cert(*(names or ("127.0.0.1", "localhost")), common_name=common_name)
        stem = common_name or (names[0] if names else "server")
        certificate = Certificate(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        certificate.cert_file.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(certificate.key_file))
        return certificate

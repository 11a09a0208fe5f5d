"""An HTTP server that answers as a test says, also in ways that no server should."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Send = Callable[[bytes], None]
Reply = Callable[[Send], None]


@dataclass
class Server:
    """Answers each request with the next of `replies`, and with the last one from then on; keeps what was
    asked. The probe is apart."""

    replies: list[Reply]
    probe: Reply
    url: str = ""
    requests: list[str] = field(default_factory=list)

    def answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(60)
            asked = b""
            while b"\r\n\r\n" not in asked:
                if not (data := connection.recv(65536)):
                    return
                asked += data
            if asked.partition(b" HTTP/")[0].endswith(b"/readyz"):
                reply = self.probe
            else:
                self.requests.append(asked.decode())
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            with suppress(OSError):  # the client has seen enough
                reply(connection.sendall)


@contextmanager
def resetting() -> Iterator[int]:
    """A port where every connection is reset once something was said, as by a server of another protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.recv(1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@contextmanager
def serving(*replies: Reply, probe: Reply | None = None) -> Iterator[Server]:
    server = Server(list(replies), reply(b"", "404 Not Found") if probe is None else probe)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=server.answer, args=[connection], daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def reply(body: bytes, status: str = "200 OK", *headers: str) -> Reply:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return lambda send: send("\r\n".join(lines).encode() + body)

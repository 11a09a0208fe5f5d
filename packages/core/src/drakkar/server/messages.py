"""Messages of an event stream, as bytes."""

import asyncio
import json
from collections.abc import Sequence

from drakkar.server.fleet_api import SLICE_ROWS, Row


def frame(event: str, data: str, number: str = "") -> bytes:
    """A message of an event stream; `data` has no line breaks."""
    head = f"event: {event}\nid: {number}\n" if number else f"event: {event}\n"
    return f"{head}data: {data}\n\n".encode()


def to_json(data: object) -> str:
    """On one line, and ASCII only, which any text survives."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


async def in_slices(rows: Sequence[Row]) -> str:
    """The rows as JSON, without the brackets around; the event loop turns between slices."""
    parts = []
    for start in range(0, len(rows), SLICE_ROWS):
        parts.append(to_json(rows[start : start + SLICE_ROWS])[1:-1])
        await asyncio.sleep(0)
    return ",".join(parts)

"""The page at `/`: the workers of the fleet as a plain table. Every value is text, whoever wrote the card."""

from html import escape
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from drakkar.server.fleet_api import FleetView, worker_rows

_CELL_CHARS: Final = 200
_LIVENESS: Final = {True: "online", False: "offline", None: "unknown"}
_STYLE: Final = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8884; }
"""


def page_router(view: FleetView) -> APIRouter:
    router = APIRouter()

    @router.get("/")
    async def fleet_page() -> HTMLResponse:
        return HTMLResponse(render(worker_rows(view), view.now_ts()))

    @router.get("/style.css")
    async def style() -> Response:
        return Response(_STYLE, media_type="text/css")

    return router


def render(rows: list[dict[str, Any]], now_ts: float) -> str:
    """The page for `rows`; only an http or https address becomes a link."""
    body = "\n".join(_table_row(row, now_ts) for row in rows)
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="5"><title>Drakkar fleet</title>
<link rel="stylesheet" href="style.css"></head>
<body><h1>Workers</h1>
<table><thead><tr><th>Worker</th><th>Cluster</th><th>State</th><th>Liveness</th><th>Last seen</th>
<th>Version</th><th>Leads</th><th>Address</th></tr></thead>
<tbody>
{body}
</tbody></table></body></html>
"""


def _table_row(row: dict[str, Any], now_ts: float) -> str:
    seen = row["last_seen_ts"]
    name = row["worker_name"] + (" (this one)" if row["is_current"] else "")
    cells = [
        _text(name),
        _text(row["cluster"]),
        _text(row.get("state", "")),
        _LIVENESS[row["online"]],
        "" if seen is None else f"{max(0.0, now_ts - seen):.0f} s ago",
        _text(row.get("version", "")),
        _text(", ".join(row.get("leader_for", ()))),
        _link(row["url"]),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _link(url: str) -> str:
    if not url.lower().startswith(("http://", "https://")):
        return _text(url)
    return f'<a rel="noreferrer" href="{escape(url)}">{_text(url)}</a>'


def _text(value: str) -> str:
    """Escaped, cut to a bearable length, shown in its own direction so that it cannot reorder the row."""
    short = value if len(value) <= _CELL_CHARS else value[:_CELL_CHARS] + "…"
    return f"<bdi>{escape(short)}</bdi>"

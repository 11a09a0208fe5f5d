"""The pages and what they are made of: files of this package, served as they are. What is on a page comes by
the stream and is put there by the browser, as text."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

PAGES: Final = {"/": "live.html", "/history": "history.html"}
"""What is shown under which address."""

ASSETS: Final = "/assets/"
"""Program text that everybody can read elsewhere, too: needs no token."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_router() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def live() -> Response:
        return page(PAGES["/"])

    @router.get("/history")
    async def history() -> Response:
        return page(PAGES["/history"])

    @router.get(ASSETS + "{name}")
    async def asset(name: str) -> Response:
        if name not in contents() or name.endswith(".html"):
            raise HTTPException(404)
        return page(name)

    return router


def page(name: str) -> Response:
    return Response(contents()[name], media_type=_TYPES["." + name.rpartition(".")[2]])


@cache
def contents() -> Mapping[str, bytes]:
    """The files by their names; read once, and not while a page waits for the disk."""
    found = (file for file in files("drakkar.server").joinpath("pages").iterdir() if file.is_file())
    return {file.name: file.read_bytes() for file in found if "." + file.name.rpartition(".")[2] in _TYPES}

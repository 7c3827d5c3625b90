"""The timeline page: static files, served as they are, with no build step.

`static/` holds one page, one style sheet and a few ES modules. They ask the HTTP door for all they
show, so the page needs no more rights than its reader's token gives.
"""

from importlib.resources import files
from typing import NamedTuple

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    content: bytes
    media_type: str


def assets() -> dict[str, Asset]:
    """Each file by the path it is served at; the page itself is at `/`."""
    found = {}
    for file in files(__name__).joinpath("static").iterdir():
        kind = _KINDS.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/console/{file.name}"
            found[path] = Asset(file.read_bytes(), kind)
    return found

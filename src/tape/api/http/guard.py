"""What every request passes before it is routed.

A server without tokens trusts whoever can reach it, which is this machine. A page of another site
whose name has been pointed at 127.0.0.1 (DNS rebinding) would be such a one, so there the `Host`
must be the address served or a name of this machine. Where there are tokens, such a page has none.

A path keeps `%2F` and `%25` as they are written, so that an id with a slash is one segment; the
endpoint decodes them (`fields.PathText`).
"""

import re
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from tape.api.http.answer_headers import with_headers
from tape.api.http.door import Door
from tape.api.http.errors import from_middleware

STREAMS = frozenset({"/api/events/stream"})
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_KEPT = re.compile("%(2[Ff]|25)")


class Guard:
    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = with_headers(send)
        request = Request(scope, receive)
        if not self._door.tokens and not _is_own(request, self._door.host):
            misdirected = HTTPException(
                421, "a server without tokens accepts only localhost or its own address as Host"
            )
            await from_middleware(misdirected, request)(scope, receive, answer)
            return
        inner = dict(scope)
        raw = scope.get("raw_path")
        if raw is not None and b"%2" in raw:
            inner["path"] = _decoded(raw.decode("latin-1"))
        if scope["method"] == "HEAD" and inner["path"] not in STREAMS:
            inner["method"] = "GET"  # the server sends no body for the HEAD that it knows of
        await self._app(inner, receive, answer)


def _is_own(request: Request, served: str) -> bool:
    host = request.headers.get("host", "").lower()
    name = re.sub(r":[0-9]*$", "", host)
    local = request.scope.get("server")
    # A browser always names a host; a prober that names none is no page.
    return not name or name in _OWN_NAMES or name in (served, local[0] if local else served)


def _decoded(raw: str) -> str:
    return unquote(_KEPT.sub(lambda found: f"%25{found[1].upper()}", raw))

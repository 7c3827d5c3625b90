"""Static pages. They may load and ask for what this server has, and nothing else.

No token is needed for them: they hold nothing, and ask for the reader's token themselves.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tape.api.http.door import Page

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def add_pages(app: FastAPI, pages: Mapping[str, Page]) -> None:
    for path, page in pages.items():
        app.add_route(path, _serving(page), methods=["GET"], include_in_schema=False)


def _serving(page: Page) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(page.content).hexdigest()[:32]}"'
    headers = {
        "etag": tag,
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
        "x-frame-options": "DENY",
    }

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(page.content, headers=headers, media_type=page.media_type)

    return serve

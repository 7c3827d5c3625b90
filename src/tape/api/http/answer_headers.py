"""The headers of every answer: it is only for whoever asked, and nobody keeps it."""

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def with_headers(send: Send) -> Send:
    """Send with these headers, where an answer does not set them otherwise."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending

"""A message as a poll gives it to an app: the input that a subscription would make of it.

Nothing that a source holds may block a poll, so what cannot be read as asked is given as what it
is, with the reason: a body that is not the JSON it should be as its text, and one that the journal
does not take, because it is too large, without it.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson

from tape.errors import MessageRefused
from tape.model.directive import DispatchPlan
from tape.model.message import SourceMessage, body_text, message_block, payload_of
from tape.model.subscription_spec import DispatchSpec, PayloadFrom, SourceSpec, SubscriptionSpec
from tape.settings import Limits

_LEVELS: Final = 2  # the list of messages, and a message
_PLAN: Final = DispatchPlan("", "")


def polled_item(
    message: SourceMessage, source: SourceSpec, payload_from: PayloadFrom, limits: Limits
) -> bytes:
    """The message as JSON of at most `limits.payload_bytes`."""
    spec = SubscriptionSpec(
        "", "", "pull", source, DispatchSpec("", payload_from)
    )  # of no subscription: without a name, directives and trace
    refused: dict[str, str] = {}
    try:
        payload, encoding = payload_of(message, payload_from, _within_a_list(limits))
    except MessageRefused as refusal:
        payload, encoding = body_text(message.body)
        refused = _why(refusal.because, str(refusal))
    block = message_block(message, spec, _PLAN, encoding)
    item = orjson.dumps({"payload": payload, "message": block, **refused})
    if len(item) <= limits.payload_bytes:
        return item
    refused = _why(
        "too_large",
        f"with its headers the message makes {len(item)} bytes, the limit of what a run records "
        f"at once is {limits.payload_bytes} (tape.limits.payload_bytes)",
    )
    return _without_body(block | {"body_encoding": ""}, refused, limits)


def _without_body(block: dict[str, Any], refused: dict[str, str], limits: Limits) -> bytes:
    item = orjson.dumps({"payload": None, "message": block, **refused})
    if len(item) <= limits.payload_bytes:
        return item
    nothing: dict[str, Any] = {"headers": {}, "attributes": {}, "id": "", "key": "", "subject": ""}
    return orjson.dumps({"payload": None, "message": block | nothing, **refused})


def _why(reason: str, detail: str) -> dict[str, str]:
    return {"refused": reason, "detail": detail}


@lru_cache(8)
def _within_a_list(limits: Limits) -> Limits:
    return replace(limits, json_depth=max(1, limits.json_depth - _LEVELS))

"""What messages are told apart by: the key of the window of repeats, and the key that orders them.

A key is written as one word or as CEL. `idempotency_key` is what a header gave for it, else the
message's id; any other word is a field at the top of the JSON body; CEL reads `payload` and
`message`, as the run's input has them. A key of an expression may be worked for `KEY_LIMITS.steps`
at most.

Where an expression has no text for a message, because it fails, is too much work or finds nothing,
the message is ordered by the key of its source, which may be empty, and no message is a repeat of
it: what the source orders by (a device, a subject) many different messages have in common.

Whole numbers keep all their digits: two ids that are read as one would be one message.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final

import orjson

from tape.errors import InvalidArgument, PredicateError
from tape.model.digest import short_digest
from tape.model.directive import DispatchPlan
from tape.model.json_text import exceeds_64_bits
from tape.model.message import SourceMessage, as_they_came, body_text, bounded_key, message_block
from tape.model.subscription_spec import Control, PayloadFrom, SubscriptionSpec
from tape.predicates import PredicateLimits, TextExpression, check_text
from tape.predicates.conversions import to_string
from tape.predicates.values import INT_MAX, INT_MIN, UINT_MAX, UInt
from tape.predicates.work import new_work

IDEMPOTENCY_KEY: Final = "idempotency_key"
KEY_LIMITS: Final = PredicateLimits(steps=2_000)
NAMES: Final = ("payload", "message")
CHECKED: Final = 256
"""So many expressions are remembered."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII).fullmatch


@lru_cache(CHECKED)
def check_key(expression: str, *, field: str = "key") -> TextExpression | None:
    """What is evaluated for a key, None for a word; InvalidArgument if it can be no key."""
    if _WORD(expression):
        return None
    if not expression.strip():
        raise InvalidArgument("must not be empty", field=field)
    checked = check_text(expression, NAMES, field=field, limits=KEY_LIMITS)
    if not checked.names:
        raise InvalidArgument(
            f"is the same for every message: it reads neither {' nor '.join(NAMES)}", field=field
        )
    return checked


def dedup_key(message: SourceMessage, spec: SubscriptionSpec, plan: DispatchPlan) -> str:
    """What a message is known by in the window of repeats; empty if it is in none."""
    return bounded_key(_found(spec.dedup.key, message, spec, plan)) if spec.dedup else ""


def dedup_rule(spec: SubscriptionSpec) -> str:
    """How a document's keys of the window are found: the same as long as they are found by the same
    expression, and it reads the same of messages."""
    if spec.dedup is None:
        return ""
    expression = spec.dedup.key
    checked = check_key(expression)
    reads = ""
    if expression == IDEMPOTENCY_KEY:
        directives = spec.headers.directives if spec.headers is not None else ()
        reads = ",".join(d.header for d in directives if d.controls is Control.IDEMPOTENCY_KEY)
    elif checked is not None and "payload" in checked.names:
        reads = spec.dispatch.payload_from.value
    return short_digest((expression, reads))


def message_key(
    expression: str, message: SourceMessage, spec: SubscriptionSpec, plan: DispatchPlan
) -> str:
    """What a message is ordered by: an expression that was checked, else the key of its source."""
    found = _found(expression, message, spec, plan) if expression else ""
    return bounded_key(found or message.key)


def _found(
    expression: str, message: SourceMessage, spec: SubscriptionSpec, plan: DispatchPlan
) -> str:
    """The text of an expression, empty if it has none for this message."""
    if expression == IDEMPOTENCY_KEY:
        return plan.idempotency_key or message.shown_id
    try:
        return _key_text(expression, message, spec, plan)
    except (PredicateError, ValueError, RecursionError):
        return ""


def _key_text(
    expression: str, message: SourceMessage, spec: SubscriptionSpec, plan: DispatchPlan
) -> str:
    checked = check_key(expression)
    if checked is None:
        body, _is_long = _exact_json(message.body)
        return _field_text(body.get(expression)) if isinstance(body, dict) else ""
    payload_from = spec.dispatch.payload_from
    text, encoding = body_text(message.body) if payload_from is PayloadFrom.BODY else ("", "")
    values: dict[str, Any] = {}
    if "message" in checked.names:
        values["message"] = message_block(message, spec, plan, encoding)
    if "payload" in checked.names:
        match payload_from:
            case PayloadFrom.JSON:
                body, is_long = _exact_json(message.body)
                values["payload"] = _for_cel(body) if is_long else body
            case PayloadFrom.BODY:
                values["payload"] = text
            case PayloadFrom.ATTRIBUTES:
                values["payload"] = as_they_came(message.headers)
    return checked.evaluate(values)


def _field_text(value: Any) -> str:
    """As CEL's `string()` says it, and whole numbers exactly; of a list, a map or null nothing."""
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value) if type(value) is int else to_string(value, new_work(KEY_LIMITS.steps))


def _exact_json(body: bytes) -> tuple[Any, bool]:
    """With all digits of whole numbers, and whether one is beyond a signed integer; ValueError if
    it is no JSON."""
    value = orjson.loads(body)
    if exceeds_64_bits(body.decode(), is_signed=True):
        return json.loads(body), True  # the usual parser makes doubles of numbers that are longer
    return value, False


def _for_cel(value: Any) -> Any:
    """With whole numbers beyond a signed integer as CEL's unsigned ones, which else are doubles."""
    match value:
        case dict():
            return {name: _for_cel(each) for name, each in value.items()}
        case list():
            return [_for_cel(each) for each in value]
        case int() if not INT_MIN <= value <= UINT_MAX:
            raise ValueError("beyond 64 bits")
        case int() if value > INT_MAX:
            return UInt(value)
        case _:
            return value

"""A document of `kind: Subscription`, read and checked: a `SubscriptionSpec`, or the first fault.

`read_document` is for what somebody registers, `spec_of_json` for what was stored of it. What they
need (pydantic, YAML) is loaded with the first document: most processes see none.
"""

from typing import NamedTuple

from tape.errors import InvalidArgument
from tape.model.subscription_spec import SubscriptionSpec


class CheckedDocument(NamedTuple):
    """`canonical_json` is what the document says, with sorted keys and without defaults: documents
    that say the same have the same."""

    spec: SubscriptionSpec
    canonical_json: str


def read_document(text: str) -> CheckedDocument:
    """Read a document, in YAML or JSON.

    InvalidArgument names field and line of the first fault. The longest document takes some tenths
    of a second: a server reads it in a thread.
    """
    from tape.subscriptions import document_reading as reading

    document = reading.located_document(text)
    return CheckedDocument(reading.checked_spec(document), reading.canonical_json(document))


def with_line(fault: InvalidArgument, text: str) -> InvalidArgument:
    """A refusal of a document that was read, by whoever knows only its field."""
    from tape.subscriptions import document_reading as reading

    line = reading.located_document(text).line_of(fault.field)
    if fault.line is None and line is not None:
        fault.line, fault.args = line, (f"{fault} (line {line})",)
    return fault


def spec_of_json(canonical_json: str) -> SubscriptionSpec:
    """Read what was stored: the canonical JSON of a document."""
    from tape.subscriptions import document_reading as reading

    return reading.checked_spec(reading.stored_document(canonical_json))

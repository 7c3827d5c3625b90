"""The block `spec.headers`: which headers of a message decide something."""

from typing import Annotated, Literal

from pydantic import ConfigDict

from tape.model.subscription_spec import Control
from tape.subscriptions.document_block import DocumentBlock, means
from tape.subscriptions.document_fields import (
    BaggageKey,
    HeaderName,
    Text,
    Word,
)
from tape.subscriptions.document_keys import CONTROL_KEYS, conditions


class DirectiveBlock(DocumentBlock):
    """A header that may decide something."""

    model_config = ConfigDict(json_schema_extra=conditions("controls", CONTROL_KEYS))

    header: HeaderName = means("The name of the header; upper and lower case are the same.")
    controls: Annotated[Control, Word] = means("What the header decides.")
    allowed: list[Text] | None = means(
        "The values that count; others are refused.", None, min_length=1
    )
    map: dict[Text, Text] | None = means(
        "The pool of each value, for priority.", None, min_length=1
    )


class TraceBlock(DocumentBlock):
    """Whether the trace of a message goes on in its run."""

    propagate: Literal["w3c"] = means("Honour traceparent, tracestate and baggage.")
    baggage_allowlist: list[BaggageKey] = means("The keys of baggage that are kept.", [])


class HeadersBlock(DocumentBlock):
    """Which headers decide something. All others are data."""

    normalize: bool = means("Whether runs see the names of headers in lower case.", default=True)
    directives: list[DirectiveBlock] = means("The headers that decide something.", [])
    trace: TraceBlock | None = means("Trace context.", None)
    passthrough: Literal["data"] = means("What other headers are.", "data")

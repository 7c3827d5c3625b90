"""How a document becomes a spec: nodes, types, rules, rows; the first fault ends it."""

from collections.abc import Iterator
from typing import Any, Final

import orjson
from pydantic import ValidationError

from tape.errors import InvalidArgument
from tape.model.subscription_spec import SubscriptionSpec
from tape.settings import KIB
from tape.settings.located import LocatedDocument, NodePath, read_located
from tape.settings.yaml_nodes import DocumentRules
from tape.subscriptions.document import SubscriptionDocument
from tape.subscriptions.document_faults import first_fault
from tape.subscriptions.document_rules import broken_rules
from tape.subscriptions.spec_rows import spec_of

RULES: Final = DocumentRules(most_bytes=64 * KIB, most_depth=16)
FIELD: Final = "document"


def located_document(text: str) -> LocatedDocument:
    document = read_located(text, RULES, field=FIELD)
    if not isinstance(document.value, dict):
        raise InvalidArgument(
            "must be a document of kind: Subscription", field=FIELD, line=document.line(())
        )
    return document


def canonical_json(document: LocatedDocument) -> str:
    return orjson.dumps(document.value, option=orjson.OPT_SORT_KEYS).decode()


def stored_document(text: str) -> LocatedDocument:
    """Of canonical JSON, which has no lines."""
    return LocatedDocument(orjson.loads(text), {})


def checked_spec(document: LocatedDocument) -> SubscriptionSpec:
    try:
        checked = SubscriptionDocument.model_validate(document.value)
    except ValidationError as error:
        raise first_fault(error, document) from None
    for path in _empty_places(document.value, ()):
        raise document.refusal("is empty; give it a value, or remove the key", path)
    for rule in broken_rules(checked):
        raise document.refusal(rule.said, rule.path)
    return spec_of(checked)


def _empty_places(value: Any, path: NodePath) -> Iterator[NodePath]:
    match value:
        case None:
            yield path
        case dict():
            for key, inner in value.items():
                yield from _empty_places(inner, (*path, key))
        case list():
            for place, inner in enumerate(value):
                yield from _empty_places(inner, (*path, place))

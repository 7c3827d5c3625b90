"""The JSON schema, before a validator that nobody here wrote."""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson
import pytest

from tape.errors import InvalidArgument
from tape.settings.located import read_located
from tape.subscriptions.document_reading import RULES
from tape.subscriptions.document_schema import document_schema
from tape.subscriptions.spec import read_document
from tests.unit.subscriptions.documents import WORKING
from tests.unit.subscriptions.test_refusals import EACH, Refused, document

SCHEMA = document_schema()
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)

ONLY_THE_READER_KNOWS = {
    ("metadata.path", "must be subscriptions/orders"),
    ("spec.cadence", "its day of month is"),
    ("spec.cadence", "0 25 * * * is not a cadence"),
    ("spec.runtime.pool", "contains a control character"),
    ("spec.runtime.timeout_ms", "5001 is out of range"),
    ("spec.runtime.server_url", "tape:// is for this machine"),
    ("spec.runtime.server_url", "contains a login"),
    ("spec.headers.directives[5].header", "authorization holds a secret"),
    ("spec.headers.directives[5].controls", "content_type is controlled"),
    ("spec.headers.directives[5].controls", "priority is controlled"),
    ("spec.headers.directives[2].map.yes", "is listed twice"),
    ("spec.spool.bucket", "is not an absolute folder"),
    ("spec.spool.bucket", "is not gs://"),
    ("spec.spool.bucket", "is not s3://"),
    ("spec.spool.bucket", "is not the name of an object store"),
    ("spec.spool.auth", "a folder needs no credential"),
    ("spec.spool.auth", "is required for backend"),
    ("spec.spool.ordering_key", "Syntax error"),
    ("spec.spool.ordering_key", "undeclared reference"),
    ("spec.spool.retention.max_bytes", "2048Ti"),
    ("spec.dedup.key", "at position 13: Syntax error"),
    ("spec.dedup.key", "at position 18: "),
    ("spec.dedup.key", "is the same for every message"),
    ("spec.dedup.key", "undeclared reference"),
    ("spec.dedup.key", "must be a text"),
    ("spec.scaling.keda.min", "13 is more than max"),
    ("spec.ingress.verify.jwks_url", "http:// is for this machine"),
    ("spec.ingress.verify.parts", "ingress.message_id must name"),
    ("spec.ingress.verify.timestamp_header", "is required, as parts"),
    ("spec.ingress.verify.public_url", "is required, as parts"),
    ("spec.ingress.message_id", "Syntax error"),
    ("spec.ingress.ordering_key", "must be a text"),
    ("spec.spool.downstreams[1].name", "another downstream"),
    ("spec.spool.downstreams[1].probe.http", "contains a login"),
}
"""Refusals that the schema has not: they go by two fields at once, by CEL, by a calendar."""


def test_its_head() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"] == "urn:tape:subscription:v1"
    assert SCHEMA["title"] == "Subscription"
    jsonschema_rs.meta.validate(SCHEMA)


@pytest.mark.parametrize("name", WORKING)
def test_documents_that_load_are_valid(name: str) -> None:
    said = orjson.loads(read_document(WORKING[name]).canonical_json)
    assert [str(fault) for fault in VALIDATOR.iter_errors(said)] == []


def only_the_reader_knows(refused: Refused) -> bool:
    return any(
        refused.field == field and refused.says.startswith(says)
        for field, says in ONLY_THE_READER_KNOWS
    )


@pytest.mark.parametrize("refused", EACH, ids=[f"{r.row} {r.field} {r.says[:24]}" for r in EACH])
def test_what_is_refused_is_not_valid(refused: Refused) -> None:
    text, _line = document(refused)
    try:
        said = read_located(text, RULES, field="document").value
    except InvalidArgument:
        said = {}  # no validator sees it
    else:
        assert VALIDATOR.is_valid(said) is only_the_reader_knows(refused)
    assert said or only_the_reader_knows(refused)


def fields(block: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field of the schema, with what its definition adds."""
    for name, field in block.get("properties", {}).items():
        path = f"{at}.{name}" if at else name
        inner = field.get("items", field)
        kind = SCHEMA["$defs"][inner["$ref"].rpartition("/")[2]] if "$ref" in inner else {}
        yield path, kind | field
        yield from fields(kind, f"{path}[]" if "items" in field else path)


FIELDS = dict(fields(SCHEMA))


def test_every_field_is_there() -> None:
    assert len(FIELDS) > 100
    assert {"apiVersion", "spec.spool.drain.rate_per_sec", "spec.headers.directives[].map"} <= (
        FIELDS.keys()
    )


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_has_a_title_and_a_sentence(path: str) -> None:
    field = FIELDS[path]
    assert field["title"]
    assert field["description"].endswith("."), field["description"]
    assert field["description"][:1] not in " ,."
    assert "Block" not in field["title"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("spec.source", ["nats", "kafka", "pubsub", "file", "webhook"]),
        ("spec.mode", ["pull", "push"]),
        ("spec.spool.mode", ["off", "buffer_and_ack", "hybrid"]),
        ("spec.runtime.target", ["dedicated-pool", "cloud-run", "local"]),
        ("spec.ingress.verify.scheme",
         ["raw", "github", "stripe", "slack", "shopify", "standard", "svix"]),
    ],
)  # fmt: skip
def test_closed_sets_are_enumerations(path: str, words: list[str]) -> None:
    assert FIELDS[path]["enum"] == words


@pytest.mark.parametrize(
    ("path", "default"),
    [
        ("spec.runtime.batch", 100), ("spec.dispatch.batch_max", 100),
        ("spec.dispatch.execution_pool", "subscription"), ("spec.dispatch.batch_dispatch", False),
        ("spec.dispatch.payload_from", "message.json"), ("spec.runtime.max_in_flight", 1000),
        ("spec.runtime.target", "dedicated-pool"), ("spec.spool.circuit.trip_after", 5),
        ("spec.spool.circuit.probe_after_ms", 30_000), ("spec.spool.ordering", "per_key"),
        ("spec.spool.retention.max_bytes", 10 * 2**30), ("spec.spool.retention.max_age_hours", 72),
        ("spec.spool.drain.rate_per_sec", 200), ("spec.spool.drain.max_replay_attempts", 10),
        ("spec.dedup.key", "idempotency_key"), ("spec.headers.normalize", True),
    ],
)  # fmt: skip
def test_defaults_are_told(path: str, default: object) -> None:
    assert FIELDS[path]["default"] == default


def test_nothing_may_be_null() -> None:
    assert b'"null"' not in orjson.dumps(SCHEMA)
    assert b":null" not in orjson.dumps(SCHEMA)

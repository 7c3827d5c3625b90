"""What has to hold in a document beyond its types, as pairs of a place and what is wrong there.

They come in the order of the document; the reader takes the first.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from tape.errors import InvalidArgument
from tape.model.subscription_spec import MOST_TIMEOUT_MS, OTHER_TIMEOUT_MS, Control
from tape.settings.located import NodePath
from tape.subscriptions.document import (
    KedaBlock,
    MetadataBlock,
    SubscriptionBlock,
    SubscriptionDocument,
)
from tape.subscriptions.document_fields import ID_HEADER
from tape.subscriptions.document_headers import DirectiveBlock, HeadersBlock
from tape.subscriptions.document_ingress import IngressBlock, VerifyBlock
from tape.subscriptions.document_keys import (
    ACTIVATION_KEYS,
    CONTROL_KEYS,
    MODE_KEYS,
    SOURCE_KEYS,
    SPOOL_NEEDS,
    VERIFY_KEYS,
    Choice,
    KeyTable,
    allowed_modes,
    foreign_keys,
    missing_keys,
)
from tape.subscriptions.document_spool import SpoolBlock
from tape.subscriptions.keys import check_key

LOGINS: Final = ("authorization", "proxy-authorization", "cookie")
"""Headers that hold secrets. What a directive applies is written to the journal."""
_FETCHING: Final = ("batch", "timeout_ms")
_KEY: Final = "key"
_BUCKET_FORMS: Final = {
    "gcs": (r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](?:/[^\s]*)?", "gs://BUCKET/PREFIX"),
    "s3": (r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[^\s]*)?", "s3://BUCKET/PREFIX"),
    "nats_object": (r"[A-Za-z0-9_-]{1,255}", "the name of an object store: letters, digits, _, -"),
}


class BrokenRule(NamedTuple):
    path: NodePath
    said: str


def broken_rules(document: SubscriptionDocument) -> Iterator[BrokenRule]:
    yield from _identity(document.metadata)
    spec, at = document.spec, ("spec",)
    yield from _source(spec, at)
    yield from _runtime(spec, (*at, "runtime"))
    if spec.headers is not None:
        yield from _headers(spec.headers, (*at, "headers"))
    if spec.ingress is not None:
        yield from _ingress(spec.ingress, (*at, "ingress"))
    if spec.spool is not None:
        yield from _spool(spec.spool, spec.mode, (*at, "spool"))
    if spec.dedup is not None:
        yield from _key(spec.dedup.key, (*at, "dedup", "key"))
    if spec.scaling is not None:
        yield from _keda(spec.scaling.keda, (*at, "scaling", "keda"))


def _identity(metadata: MetadataBlock) -> Iterator[BrokenRule]:
    path = f"subscriptions/{metadata.name}"
    if metadata.path != path:
        yield BrokenRule(("metadata", "path"), f"must be {path}, after metadata.name")


def _source(spec: SubscriptionBlock, at: NodePath) -> Iterator[BrokenRule]:
    modes = allowed_modes(spec.source)
    if spec.mode not in modes:
        yield BrokenRule(
            (*at, "mode"), f"source {spec.source} has no mode {spec.mode}; write {modes[0]}"
        )
        return
    given = spec.model_fields_set
    yield from _keys(SOURCE_KEYS, (spec.source, spec.mode), given, at, f"source {spec.source}")
    yield from _keys(MODE_KEYS, (spec.mode,), given, at, f"mode {spec.mode}")
    if spec.activation is not None:
        what = f"activation {spec.activation}"
        yield from _keys(ACTIVATION_KEYS, (spec.activation,), given, at, what)


def _keys(
    table: KeyTable, choice: Choice, given: set[str], at: NodePath, what: str
) -> Iterator[BrokenRule]:
    for key, owners in foreign_keys(table, choice, given):
        yield BrokenRule((*at, key), f"belongs to {owners}, and this is {what}; remove it")
    for key in missing_keys(table, choice, given):
        yield BrokenRule((*at, key), f"is required for {what}")


def _runtime(spec: SubscriptionBlock, at: NodePath) -> Iterator[BrokenRule]:
    given = spec.runtime.model_fields_set
    if spec.mode == "push":
        for key in _FETCHING:
            if key in given:
                yield BrokenRule((*at, key), "belongs to pull, and this is mode push; remove it")
    most = MOST_TIMEOUT_MS.get(spec.source, OTHER_TIMEOUT_MS)
    if spec.runtime.timeout_ms is not None and spec.runtime.timeout_ms > most:
        said = f"{spec.runtime.timeout_ms} is out of range; from 1 to {most} is allowed for source"
        yield BrokenRule((*at, "timeout_ms"), f"{said} {spec.source}")


def _headers(headers: HeadersBlock, at: NodePath) -> Iterator[BrokenRule]:
    first_with: dict[Control, int] = {}
    for number, directive in enumerate(headers.directives):
        here: NodePath = (*at, "directives", number)
        yield from _directive(directive, here)
        first = first_with.setdefault(directive.controls, number)
        if first != number:
            yield BrokenRule(
                (*here, "controls"),
                f"{directive.controls} is controlled by directives[{first}] already; one header "
                "may decide it",
            )


def _directive(directive: DirectiveBlock, at: NodePath) -> Iterator[BrokenRule]:
    if directive.header in LOGINS:
        yield BrokenRule(
            (*at, "header"), f"{directive.header} holds a secret, and directives are written down"
        )
    what = f"controls {directive.controls}"
    given = directive.model_fields_set
    yield from _keys(CONTROL_KEYS, (directive.controls,), given, at, what)


def _ingress(ingress: IngressBlock, at: NodePath) -> Iterator[BrokenRule]:
    verify, here = ingress.verify, (*at, "verify")
    given = verify.model_fields_set
    yield from _keys(VERIFY_KEYS, (verify.type,), given, here, f"type {verify.type}")
    if "parts" in given:
        yield from _parts(verify, ingress.message_id or "", here)
    if ingress.message_id is not None and not re.fullmatch(ID_HEADER, ingress.message_id):
        yield from _key(ingress.message_id, (*at, "message_id"))
    if ingress.ordering_key is not None:
        yield from _key(ingress.ordering_key, (*at, "ordering_key"))


def _parts(verify: VerifyBlock, message_id: str, at: NodePath) -> Iterator[BrokenRule]:
    parts = verify.parts
    if "{timestamp}" in parts and verify.timestamp_header is None:
        yield BrokenRule((*at, "timestamp_header"), "is required, as parts has {timestamp}")
    if "{url}" in parts and verify.public_url is None:
        yield BrokenRule((*at, "public_url"), "is required, as parts has {url}")
    if "{id}" in parts and not re.fullmatch(ID_HEADER, message_id):
        said = "{id} is signed, so ingress.message_id must name the header with the id"
        yield BrokenRule((*at, "parts"), said)


def _spool(spool: SpoolBlock, mode: str, at: NodePath) -> Iterator[BrokenRule]:
    default = "buffer_and_ack" if mode == "push" else "off"
    if (spool.mode or default) != "off":
        for key in SPOOL_NEEDS:
            if getattr(spool, key) is None:
                said = f"is required for mode {spool.mode or default}"
                yield BrokenRule((*at, key), said if spool.mode else f"{said}, the default of push")
    yield from _backend(spool, at)
    names: set[str] = set()
    for number, downstream in enumerate(spool.downstreams or ()):
        here: NodePath = (*at, "downstreams", number)
        if downstream.name in names:
            yield BrokenRule((*here, "name"), "another downstream has this name already")
        names.add(downstream.name)
        probe = downstream.probe
        if probe is not None and len(_said_in(probe)) != 1:
            yield BrokenRule((*here, "probe"), "must be one of http, tcp and nats")
    if spool.ordering_key is not None:
        yield from _key(spool.ordering_key, (*at, "ordering_key"))
    if spool.ordering == "global" and spool.drain.on_recovery == "interleave":
        said = "interleave cannot keep a global order; write ordered_then_live, or another ordering"
        yield BrokenRule((*at, "drain", "on_recovery"), said)


def _backend(spool: SpoolBlock, at: NodePath) -> Iterator[BrokenRule]:
    bucket, backend = spool.bucket, spool.backend
    if bucket is not None and backend in _BUCKET_FORMS:
        pattern, form = _BUCKET_FORMS[backend]
        if not re.fullmatch(pattern, bucket):
            yield BrokenRule((*at, "bucket"), f"is not {form}, as {backend} has it")
    if backend == "local_disk":
        if bucket is not None and not _is_absolute(bucket):
            yield BrokenRule((*at, "bucket"), "is not an absolute folder, as local_disk has it")
        if spool.auth is not None:
            yield BrokenRule((*at, "auth"), "a folder needs no credential; remove it")
    if backend == "nats_object" and spool.auth is None and spool.mode != "off":
        yield BrokenRule((*at, "auth"), "is required for backend nats_object")


def _is_absolute(folder: str) -> bool:
    path = PurePosixPath(folder)
    return path.is_absolute() and ".." not in path.parts


def _keda(keda: KedaBlock, at: NodePath) -> Iterator[BrokenRule]:
    if keda.min is not None and keda.max is not None and keda.min > keda.max:
        yield BrokenRule((*at, "min"), f"{keda.min} is more than max, which is {keda.max}")


def _key(expression: str, path: NodePath) -> Iterator[BrokenRule]:
    try:
        check_key(expression, field=_KEY)
    except InvalidArgument as fault:
        yield BrokenRule(path, str(fault).removeprefix(_KEY).removeprefix(":").lstrip())


def _said_in(block: Any) -> list[str]:
    return [name for name in block.model_fields_set if getattr(block, name) is not None]

"""A message as a dead letter, and the message again that a dead letter is of."""

from base64 import b64decode, b64encode

import orjson

from tape.errors import MessageRefused
from tape.model.drain import readable
from tape.model.message import SourceMessage, read_cut_words
from tape.model.subscription import SubscriptionDeadLetter


def letter_of(name: str, message: SourceMessage, refused: MessageRefused) -> SubscriptionDeadLetter:
    """It gets its id and its time when it is written."""
    headers = [(spelled, _text_of(value)) for spelled, value in message.headers]
    return SubscriptionDeadLetter(
        subscription=name,
        letter_id="",
        place=message.place,
        message_id=_storable(message.shown_id),
        reason=refused.because,
        detail=readable(str(refused)),
        attempts=1,
        at_ms=0,
        source=message.source,
        origin=message.origin,
        position=message.position,
        key=_storable(message.key),
        timestamp_ms=message.timestamp_ms,
        source_subject=_storable(message.subject),
        headers_json=_storable(orjson.dumps(headers).decode()),
        body=_text_of(message.body),
    )


def message_of(letter: SubscriptionDeadLetter) -> SourceMessage:
    """Its texts are as they were stored: NUL is written `\\0` in them. A body that was cut off
    stays one: no limit of today makes a whole one of it."""
    whole_bytes, whole_sha256 = read_cut_words(letter.detail)
    return SourceMessage(
        source=letter.source,
        origin=letter.origin,
        position=letter.position,
        body=b64decode(letter.body),
        headers=tuple(
            (spelled, b64decode(value)) for spelled, value in orjson.loads(letter.headers_json)
        ),
        message_id="" if letter.message_id == letter.place else letter.message_id,
        key=letter.key,
        timestamp_ms=letter.timestamp_ms,
        subject=letter.source_subject,
        whole_bytes=whole_bytes,
        whole_sha256=whole_sha256,
    )


def _text_of(value: bytes) -> str:
    return b64encode(value).decode()


def _storable(text: str) -> str:
    """No database takes NUL in a text, nor half a character."""
    return text.replace("\0", "\\0").encode(errors="replace").decode()

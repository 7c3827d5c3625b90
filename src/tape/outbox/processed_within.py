"""Handling a message once, however often a broker delivers it.

A consumer notes the message's id in the transaction in which it does what the message asks for. The
note and the deed are there together or not at all: a message that is delivered again finds the
note, and one whose handling was rolled back finds none. Of two that handle one message at once, the
second waits for the outcome of the first.
"""

import math

from tape.errors import InvalidArgument
from tape.model.names import check_name
from tape.ports.caller import Answer, CallerTransaction, Handled
from tape.settings import Limits

LEST = "the message could count as handled although your work was rolled back, or the reverse"
CREATE_LEST = "the table could be created only in part"
FORGET_LEST = "the removal could not be rolled back together with the rest of your work"


def note_processed(
    tx: CallerTransaction, consumer: str, message_id: str, limits: Limits
) -> Answer[bool]:
    for field, text in (("consumer", consumer), ("message_id", message_id)):
        if not isinstance(text, str):
            raise InvalidArgument(f"must be a text, not {type(text).__name__}", field=field)
        check_name(text, limits, field=field, required=True)
    tx.require_open(LEST)
    return tx.note_processed(Handled(consumer, message_id))


def create_processed(tx: CallerTransaction) -> Answer[None]:
    tx.require_open(CREATE_LEST)
    return tx.create_processed()


def forget_processed(tx: CallerTransaction, older_than_s: float) -> Answer[int]:
    if not isinstance(older_than_s, int | float) or not 0 < older_than_s < math.inf:
        raise InvalidArgument("must be a number of seconds above 0", field="older_than_s")
    tx.require_open(FORGET_LEST)
    return tx.forget_processed(int(older_than_s * 1000))

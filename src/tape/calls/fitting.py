"""Answers that any client can receive."""

from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import Message

from tape.settings import MIB

M = TypeVar("M", bound=Message)

# A client that does not say otherwise accepts 4 MiB.
ANSWER_BYTES = 4 * MIB - 64 * 1024
TAG_BYTES = 8  # before each message in an answer: which field, and its length


def fitting(messages: Iterable[M]) -> tuple[list[M], bool]:
    """As many as fit into an answer, and at least one; and whether there are more."""
    size = 0
    kept: list[M] = []
    for message in messages:
        size += message.ByteSize() + TAG_BYTES
        if kept and size > ANSWER_BYTES:
            return kept, True
        kept.append(message)
    return kept, False

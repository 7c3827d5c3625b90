"""What a durable consumer lets its listener see of a stream: a bulk read takes that, and no more.

What the durable has passed is not delivered to a listener again. Where it began is a part of that:
the server counts what was before a durable's beginning as acknowledged.
"""

from typing import Any, Final, NamedTuple

from tape.errors import SourceRefused

_ONE_CONSUMER: Final = "workqueue"
_LAST_OF_EACH: Final = "last_per_subject"


class DurableView(NamedTuple):
    """`subjects` is empty for all of the stream. `passed` is the sequence up to which nothing is
    delivered again."""

    subjects: tuple[str, ...]
    headers_only: bool
    passed: int


def durable_view(stream: str, durable: str, info: Any) -> DurableView:
    """By NATS' own description. SourceRefused if its listener would be refused, or if Spark cannot
    read what that one gets."""
    config, named = info.config, f"{durable} of the stream {stream}"
    policy = _text(config.ack_policy)
    if config.deliver_subject:
        raise SourceRefused(f"consumer: {named} is a push consumer; name a pull consumer")
    if policy != "explicit":
        raise SourceRefused(
            f"consumer: {named} has the ack policy {policy}; name one whose ack policy is explicit"
        )
    if _text(config.deliver_policy) == _LAST_OF_EACH:
        raise SourceRefused(
            f"consumer: {named} began with the last message of each subject, which cannot be read "
            "in bulk: let its listener take them"
        )
    subjects = config.filter_subjects or filter(None, [config.filter_subject])
    return DurableView(tuple(subjects), bool(config.headers_only), info.ack_floor.stream_seq)


def refuse_one_consumer(stream: str, retention: object) -> None:
    if _text(retention) == _ONE_CONSUMER:
        raise SourceRefused(
            f"stream: {stream} keeps each message for one consumer alone (retention workqueue), "
            "so that only its listener can read it"
        )


def _text(word: object) -> str:
    return str(getattr(word, "value", word))

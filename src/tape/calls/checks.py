"""What the server looks at before it passes a request on."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from google.protobuf.message import Message

from tape.errors import InvalidArgument, TooLarge
from tape.model.lease import Taker
from tape.model.names import check_name
from tape.model.run_write import RunWrite
from tape.settings import Limits

INDEXES = 2**31
TIMES = 2**62
SEQUENCE = 2**63


def check_number(number: int, below: int, *, field: str) -> int:
    if not 0 <= number < below:
        raise InvalidArgument(f"{number} is not in 0..{below - 1}", field=field)
    return number


def check_member(kind: type[IntEnum], number: int, *, field: str) -> int:
    """One of these, or 0 where none is named."""
    if number and number not in set(kind):
        known = ", ".join(f"{member.value} ({member.name})" for member in kind)
        raise InvalidArgument(f"{number} is not one of {known}", field=field)
    return number


def check_names(texts: Iterable[str], limits: Limits, *, field: str) -> None:
    for index, text in enumerate(texts):
        check_name(text, limits, field=f"{field}[{index}]")


def check_size(request: Message, limits: Limits, *, field: str) -> None:
    size = request.ByteSize()
    if size > limits.request_bytes:
        raise TooLarge(
            f"the request has {size} bytes, the limit is {limits.request_bytes}", field=field
        )


@contextmanager
def naming_write(writes: Sequence[RunWrite], limits: Limits) -> Iterator[None]:
    """Whoever sends many writes is told which of them is at fault."""
    try:
        yield
    except InvalidArgument:
        for index, write in enumerate(writes):
            try:
                write.checked(limits)
            except InvalidArgument as fault:
                fault.args = (f"writes[{index}].{fault}",)
                raise
        raise


def ttl_ms(wanted: int, limits: Limits) -> int:
    """For how long a claim is; the same as for a lease."""
    return Taker(ttl_ms=wanted).checked(limits).ttl_ms

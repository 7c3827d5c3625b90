"""Python values that protobuf cannot carry."""

from collections.abc import Iterator
from contextlib import contextmanager

from tape.errors import InvalidArgument


@contextmanager
def representable() -> Iterator[None]:
    """What protobuf cannot carry, a lone surrogate or a number over 64 bits, is a bad argument."""
    try:
        yield
    except ValueError as error:
        raise InvalidArgument(f"cannot be sent: {error}") from None

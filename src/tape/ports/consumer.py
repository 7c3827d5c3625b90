"""A message as a consumer of a broker gets it."""

from collections.abc import Mapping
from typing import NamedTuple


class Delivery(NamedTuple):
    """`receipt` is what it is acknowledged by; `deliveries` counts from 1."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    receipt: str
    deliveries: int
    stream_seq: int

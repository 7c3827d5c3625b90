"""Reads protobuf's wire format, as far as a serialized CEL expression needs it.

No generated message class does this job: protobuf's Python runtime stops at 100 nested messages,
and an expression within our own nesting limit has more than that once its macros are expanded.
"""

import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtoMessage:
    """The fields of one message by number; those that are absent read as zero or empty."""

    __slots__ = ("_numbers", "_pieces")

    def __init__(self, data: bytes) -> None:
        self._numbers: dict[int, int] = {}
        self._pieces: dict[int, list[bytes]] = {}
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            if key & 7 == _VARINT:
                self._numbers[key >> 3], at = _varint(data, at)
                continue
            if key & 7 == _BYTES:
                length, at = _varint(data, at)
            else:
                length = {_FIXED64: 8, _FIXED32: 4}[key & 7]
            self._pieces.setdefault(key >> 3, []).append(data[at : at + length])
            at += length

    def has(self, number: int) -> bool:
        return number in self._numbers or number in self._pieces

    def unsigned(self, number: int) -> int:
        return self._numbers.get(number, 0)

    def signed(self, number: int) -> int:
        value = self._numbers.get(number, 0)
        return value - 2**64 if value >= 2**63 else value

    def double(self, number: int) -> float:
        value: float = struct.unpack("<d", self.blob(number))[0]
        return value

    def blob(self, number: int) -> bytes:
        return self._pieces.get(number, [b""])[-1]

    def text(self, number: int) -> str:
        return self.blob(number).decode()

    def message(self, number: int) -> "ProtoMessage":
        return ProtoMessage(self.blob(number))

    def messages(self, number: int) -> "list[ProtoMessage]":
        return [ProtoMessage(piece) for piece in self._pieces.get(number, ())]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7

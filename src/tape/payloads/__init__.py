"""Payloads whose types evolve by addition alone (`model.payload_schema` has the rules).

from tape.payloads import Payload

class KlineEvent(Payload, subject="market.klines.>"):
    schema_version: int = 1
    symbol: str = ""
    close: float = 0.0

The rules that can be seen in a class are checked when it is made: `schema_version` comes first and
is an integer, and every field has a default, those of nested types too. The rules between two
versions of a class are checked against its recorded history, by `tape schema check`.
"""

from tape.payloads.payload import Part, Payload

__all__ = ["Part", "Payload"]

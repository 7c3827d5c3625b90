"""How both dialects see a payload, and when they may be trusted with it.

Neither engine can hold the character NUL that a JSON string may write as an escape: Postgres fails
the whole query, SQLite 3.40 cuts the string short. So the escape is replaced before the engine
parses. No string that had it can then equal a constant that holds none of `STAND_INS`.
"""

from typing import Final

DOCUMENT: Final = r"replace(payload_json, '\u0000', '\uE000')"
STAND_INS: Final = ("\x00", "\ue000", "u0000", "uE000")


def comparable(text: str) -> bool:
    """Whether a key or constant means the same before and after the replacement."""
    return not any(stand_in in text for stand_in in STAND_INS)

"""How much one page may hold."""

from typing import Final

from tape.settings import Limits

DEFAULT_PAGE: Final = 1_000


def page_entries(wanted: int, limits: Limits) -> int:
    return min(wanted, limits.page_entries) if wanted > 0 else DEFAULT_PAGE


def page_bytes(wanted: int, limits: Limits) -> int:
    return min(wanted or limits.page_bytes, limits.page_bytes)

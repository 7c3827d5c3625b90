"""Whether the store answers, in words for anybody: `/readyz` asks for no token."""

import asyncio
from typing import Final

from tape.bus import Operations
from tape.errors import StoreUnavailable

READY_S: Final = 2.0


async def why_not_ready(operations: Operations) -> str:
    """Say why the store does not answer; empty if it does."""
    try:
        async with asyncio.timeout(READY_S):
            await operations.info()
    except TimeoutError:
        return f"the store did not answer within {READY_S:g} s"
    except StoreUnavailable:  # its own words name hosts
        return "the store cannot be reached"
    return ""

"""What orders become: a run of one of these apps, and one act at the venue."""

from typing import Any

import tape

AT_THE_VENUE: list[int] = []
"""The numbers of orders in the order in which they were placed."""


@tape.effect(connector="venue")
async def place(number: int, cents: int) -> dict[str, int]:
    AT_THE_VENUE.append(number)
    return {"number": number, "cents": cents}


@tape.app("place_order")
async def place_order(_ctx: tape.Context, order: dict[str, Any]) -> dict[str, int]:
    """`order` has the body as `payload`, and beside it `message`: place, headers, trace."""
    return await place(order["payload"]["number"], order["payload"]["cents"])


@tape.app("place_urgent_order")
async def place_urgent_order(_ctx: tape.Context, order: dict[str, Any]) -> dict[str, int]:
    return await place(order["payload"]["number"], order["payload"]["cents"])

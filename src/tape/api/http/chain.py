"""`GET /api/events/{global_seq}/chain`: what led to an entry, and what it led to."""

from collections.abc import Sequence
from typing import Any

from fastapi import Response

from tape.api.http.entry import EntryReply, entry_record, json_response
from tape.api.http.fields import PathPosition, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.api.http.runs import RunReply, run_reply
from tape.calls.role import Role
from tape.chains import read_chain
from tape.model.entry import Entry

routes = Routes("events")


class ChainReply(Reply):
    """`causes` are ordered from the nearest to the first; `effects` and `trace` as in the journal;
    `runs` are those that drainers and reactions started for it. `complete` is false if there may be
    more.
    """

    event: EntryReply
    causes: list[EntryReply]
    effects: list[EntryReply]
    trace: list[EntryReply]
    runs: list[RunReply]
    complete: bool


@routes.add(
    "GET", "/api/events/{global_seq:int}/chain", role=Role.READ, reply=ChainReply, refusals=(404,)
)
async def get_chain(door: TheDoor, global_seq: PathPosition) -> Response:
    """Get the causes and the effects of an entry, and the other entries of its trace."""
    chain = await read_chain(door.operations, global_seq, door.limits)
    return json_response(
        {
            "event": entry_record(chain.entry),
            "causes": _records(chain.causes),
            "effects": _records(chain.effects),
            "trace": _records(chain.trace),
            "runs": [run_reply(run).model_dump() for run in chain.runs],
            "complete": chain.is_complete,
        }
    )


def _records(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [entry_record(entry) for entry in entries]

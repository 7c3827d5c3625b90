"""Reactions and how they are doing."""

from typing import Annotated, Literal

from fastapi import Query

from tape.api.http.fields import Params, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.model.names import check_name
from tape.model.reaction import HandlerKind, ReactionState

routes = Routes("reactions")


class ReactionReply(Reply):
    """`lag` is how many entries the journal is ahead of the reaction."""

    reaction_id: str
    name: str
    subject_pattern: str
    predicate_cel: str
    handler_kind: Literal["agent", "task", "publish"]
    agent_app: str
    pool: str
    publish_target: str
    max_concurrency: int
    rate_limit_per_s: int
    debounce_ms: int
    retry_max: int
    retry_backoff_ms: int
    dlq_after_n: int
    num_shards: int
    engine: str
    created_at_ms: int
    position: int
    lag: int
    last_processed_at_ms: int
    matched: int
    coalesced: int
    predicate_errors: int
    last_error: str
    pending: int
    claimed: int
    dead_letters: int


class ReactionsReply(Reply):
    reactions: list[ReactionReply]
    head_global_seq: int


class ReactionsParams(Params):
    subject_pattern: str = ""


@routes.add("GET", "/api/reactions", role=Role.READ, reply=ReactionsReply)
async def list_reactions(
    door: TheDoor, params: Annotated[ReactionsParams, Query()]
) -> ReactionsReply:
    """List all reactions, those with a pattern, or those that match a subject."""
    check_name(params.subject_pattern, door.limits, field="subject_pattern")
    states = await door.operations.reactions.list_reactions(params.subject_pattern)
    head = (await door.operations.info()).head_global_seq
    return ReactionsReply(reactions=[_reply(state, head) for state in states], head_global_seq=head)


def _reply(state: ReactionState, head: int) -> ReactionReply:
    fields = state.reaction._asdict() | state._asdict()
    fields["handler_kind"] = HandlerKind(state.reaction.handler_kind).name.lower()
    fields["lag"] = max(0, head - state.position)
    return ReactionReply(**{name: fields[name] for name in ReactionReply.model_fields})

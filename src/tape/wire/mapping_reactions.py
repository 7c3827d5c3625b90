"""Reactions and how they are doing. A setting that is absent from a message has its default."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from tape.errors import InvalidArgument
from tape.model.reaction import NewReaction, Reaction, ReactionState
from tape.wire.v1 import tape_pb2 as pb

_OPTIONAL = frozenset(
    field.name for field in pb.Reaction.DESCRIPTOR.fields if field.containing_oneof is not None
)
_TEXTS = (
    "reaction_id", "name", "subject_pattern", "predicate_cel", "agent_app", "publish_target",
    "pool",
)  # fmt: skip
_PROGRESS = ReactionState._fields[1:]
_reaction_fields = attrgetter(*Reaction._fields)
_progress_fields = attrgetter(*_PROGRESS)


def new_to_wire(new: NewReaction) -> pb.Reaction:
    return pb.Reaction(**new._asdict())


def new_from_wire(message: pb.Reaction) -> NewReaction:
    """What is asked for; when it was made and whether it is deleted is not for a client to say."""
    given: dict[str, Any] = {
        field.name: value for field, value in message.ListFields() if field.name in _OPTIONAL
    }
    if message.bootstrap_from_head and "from_global_seq" in given:
        raise InvalidArgument(
            "excludes from_global_seq: a reaction starts at one place", field="bootstrap_from_head"
        )
    return NewReaction(
        **{name: getattr(message, name) for name in _TEXTS},
        handler_kind=message.handler_kind,
        engine=message.engine or "server",
        **given,
    )


def reaction_to_wire(reaction: Reaction) -> pb.Reaction:
    return pb.Reaction(**reaction._replace(deleted=bool(reaction.deleted))._asdict())


def reaction_from_wire(message: pb.Reaction) -> Reaction:
    return Reaction._make(_reaction_fields(message))._replace(deleted=int(message.deleted))


def states_to_wire(states: Iterable[ReactionState]) -> pb.ListReactionsResponse:
    response = pb.ListReactionsResponse()
    for reaction, *progress in states:
        response.reactions.append(reaction_to_wire(reaction))
        response.progress.add(
            reaction_id=reaction.reaction_id, **dict(zip(_PROGRESS, progress, strict=True))
        )
    return response


def states_from_wire(response: pb.ListReactionsResponse) -> list[ReactionState]:
    return [
        ReactionState(reaction_from_wire(reaction), *_progress_fields(progress))
        for reaction, progress in zip(response.reactions, response.progress, strict=True)
    ]

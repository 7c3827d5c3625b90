"""The calls on reactions. A setting that is absent from a message has its default."""

from collections.abc import Iterable
from operator import attrgetter, methodcaller
from typing import Any, Final

from tape.bus.reactions import ReactionOperations
from tape.calls.call import Call, Noun, Whole
from tape.calls.replies import Field, HandMapped
from tape.calls.role import Role
from tape.errors import InvalidArgument
from tape.model.reaction import NewReaction, Reaction, ReactionState
from tape.reactions.settings import named
from tape.wire.codec import Computed, Record
from tape.wire.v1 import tape_pb2 as pb

_OPTIONAL = frozenset(
    field.name for field in pb.Reaction.DESCRIPTOR.fields if field.containing_oneof is not None
)
_TEXTS = (
    "reaction_id", "name", "subject_pattern", "predicate_cel", "agent_app", "publish_target",
    "pool",
)  # fmt: skip
_PROGRESS = ReactionState._fields[1:]
_progress_fields = attrgetter(*_PROGRESS)

REACTION: Final = Record(
    Reaction,
    pb.Reaction,
    held={
        "deleted": Computed(
            lambda message: int(message.deleted), lambda deleted: {"deleted": bool(deleted)}
        )
    },
)


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


def _states_to_wire(states: Iterable[ReactionState]) -> pb.ListReactionsResponse:
    response = pb.ListReactionsResponse()
    for reaction, *progress in states:
        response.reactions.append(REACTION.to_wire(reaction))
        response.progress.add(
            reaction_id=reaction.reaction_id, **dict(zip(_PROGRESS, progress, strict=True))
        )
    return response


def _states_from_wire(response: pb.ListReactionsResponse) -> list[ReactionState]:
    return [
        ReactionState(REACTION.from_wire(reaction), *_progress_fields(progress))
        for reaction, progress in zip(response.reactions, response.progress, strict=True)
    ]


REACTIONS: Final[Noun[ReactionOperations]] = Noun(
    lambda operations: operations.reactions,
    Call(
        "RegisterReaction",
        Role.WRITE,
        ReactionOperations.register_reaction,
        REACTION,
        held={
            "new": Computed(lambda message: named(new_from_wire(message)), methodcaller("_asdict"))
        },
    ),
    Call(
        "DeregisterReaction",
        Role.WRITE,
        ReactionOperations.deregister_reaction,
        Field("deregistered", bool),
    ),
    Call(
        "ListReactions",
        Role.READ,
        ReactionOperations.list_reactions,
        HandMapped(_states_to_wire, _states_from_wire),
        whole=Whole("subject_pattern", "ask for one pattern"),
    ),
)

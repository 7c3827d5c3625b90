"""The operations on reactions over gRPC."""

from tape.client.representable import representable
from tape.client.server import Server
from tape.model.reaction import NewReaction, Reaction, ReactionState
from tape.wire import mapping_reactions
from tape.wire.v1 import tape_pb2 as pb


class GrpcReactions:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rpc = server.rpc

    async def register_reaction(self, new: NewReaction) -> Reaction:
        with representable():
            request = mapping_reactions.new_to_wire(new)
        made = await self._server.call(self._rpc.RegisterReaction, request, writes=True)
        return mapping_reactions.reaction_from_wire(made)

    async def deregister_reaction(self, reaction_id: str) -> bool:
        with representable():
            request = pb.DeregisterReactionRequest(reaction_id=reaction_id)
        answer = await self._server.call(self._rpc.DeregisterReaction, request, writes=True)
        return answer.deregistered

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        with representable():
            request = pb.ListReactionsRequest(subject_pattern=subject_pattern)
        answer = await self._server.call(self._rpc.ListReactions, request)
        return mapping_reactions.states_from_wire(answer)

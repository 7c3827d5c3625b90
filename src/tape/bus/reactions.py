"""The operations on reactions: register, stop and list them."""

from collections.abc import Callable
from typing import Protocol

from tape.errors import Pruned
from tape.journal.writer import Writer
from tape.model.reaction import (
    DeregisterReaction,
    NewReaction,
    Reaction,
    ReactionState,
    RegisterReaction,
)
from tape.model.subject import parse_pattern
from tape.ports.store import Store
from tape.predicates import Checker
from tape.settings import Limits

CheckTarget = Callable[[str], None]
"""Refuses a publish target that no broker would know."""


class ReactionOperations(Protocol):
    async def register_reaction(self, new: NewReaction) -> Reaction:
        """Add a reaction, or change the settings of one that is there; never its cursors."""

    async def deregister_reaction(self, reaction_id: str) -> bool:
        """Stop it; False if there was none. Its tasks stay, unclaimed."""

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        """All, those with this pattern, or those that this subject would wake."""


class Reactions:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        limits: Limits,
        checker: Checker,
        check_target: CheckTarget | None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._limits = limits
        self._checker = checker
        self._check_target = check_target

    async def register_reaction(self, new: NewReaction) -> Reaction:
        move = RegisterReaction(new, self._limits)
        await self._checker.checked(new.predicate_cel)
        if new.publish_target and self._check_target is not None:
            self._check_target(new.publish_target)
        if new.from_global_seq:
            await self._refuse_pruned(new.reaction_id, new.from_global_seq)
        return await self._writer.submit(move)

    async def _refuse_pruned(self, reaction_id: str, after: int) -> None:
        """A new reaction cannot start where entries are missing; one that is there goes on."""
        pruned = await self._store.retention.read_pruned_through()
        if after < pruned:
            known = (await self._store.matching.read_reactions()).reactions
            if all(reaction.reaction_id != reaction_id for reaction in known):
                raise Pruned(
                    f"from_global_seq: entries up to {pruned} have been pruned: start from "
                    "there, or from 0 for the oldest entry kept, and backfill the rest from the "
                    "lake"
                )

    async def deregister_reaction(self, reaction_id: str) -> bool:
        return await self._writer.submit(DeregisterReaction(reaction_id, self._limits))

    async def list_reactions(self, subject_pattern: str = "") -> list[ReactionState]:
        found = await self._store.matching.list_reactions()
        return [
            state
            for state in found
            if subject_pattern in ("", state.reaction.subject_pattern)
            or parse_pattern(state.reaction.subject_pattern).matches(subject_pattern)
        ]

"""Late reactions: they stand behind the matcher, and are matched alone until they have caught up.

A reaction is late because it starts in the past, or because its predicate takes long. What it takes
to match a page of one of them must not hold up the others, so it is done beside them, as a *bout*:
it reads, and decides at the pace that its predicate is given. One bout runs at a time, of whoever
had none for longest. The matcher makes a step of what came of it when it has ended.

On a busy journal there is always something new by then. One that has shown that it is quick is
therefore matched between two pages of the others, and joins them in that step. One that takes long
joins when nothing new has come meanwhile.
"""

import asyncio
from collections.abc import Iterable

from tape.journal.pacer import PacedTurns, Pacer
from tape.ports.store import PAGE_BYTES, ReadEntries, Store
from tape.reactions.rules import Matched, Matching, ReactionRule, ReactionRules
from tape.settings import MatcherSettings


class LateRules:
    def __init__(self, store: Store, settings: MatcherSettings, pacer: Pacer) -> None:
        self._store = store
        self._settings = settings
        self._pacer = pacer
        self._rules: dict[str, ReactionRule] = {}
        self._turn = 0
        self._rule_in_bout: ReactionRule | None = None
        self.bout: asyncio.Task[Matched] | None = None

    def place(self, rules: Iterable[ReactionRule]) -> None:
        """These are late now, and no others."""
        self._rules = {rule.reaction_id: rule for rule in rules}
        rule = self._rule_in_bout
        if rule is not None and self._rules.get(rule.reaction_id) is not rule:
            self._end_bout()

    def is_in_bout(self, rule: ReactionRule) -> bool:
        return rule is self._rule_in_bout

    def add(self, rule: ReactionRule) -> None:
        self._rules[rule.reaction_id] = rule

    def take_out(self, rule: ReactionRule) -> None:
        del self._rules[rule.reaction_id]

    def begin_bout(self, position: int) -> None:
        """For whoever's turn it is, unless one is under way or all of them are quick."""
        if self.bout is not None:
            return
        rule = self._next(quick=False)
        if rule is not None:
            self._rule_in_bout = rule
            turns, most_s = self._pacer.service_turns(), self._pacer.settings.page_s
            self.bout = asyncio.create_task(
                self._matched(rule, position, turns, most_s), name="tape-late-reaction"
            )

    def ended_bout(self) -> tuple[ReactionRule, Matched] | None:
        """What came of it, if it has ended; another can begin."""
        rule, bout = self._rule_in_bout, self.bout
        if rule is None or bout is None or not bout.done():
            return None
        self._rule_in_bout = self.bout = None
        return rule, bout.result()

    async def match_quick(
        self, position: int, turns: PacedTurns
    ) -> tuple[ReactionRule, Matched] | None:
        """A page of one that is quick, here and now. If it is not so any more, less than a page."""
        rule = self._next(quick=True)
        if rule is None:
            return None
        return rule, await self._matched(rule, position, turns, self._pacer.settings.slice_s)

    async def stop(self) -> None:
        bout = self.bout
        self._end_bout()
        if bout is not None:
            await asyncio.gather(bout, return_exceptions=True)

    def _next(self, *, quick: bool) -> ReactionRule | None:
        waiting = [
            rule
            for rule in self._rules.values()
            if self._is_quick(rule) == quick and rule is not self._rule_in_bout
        ]
        rule = min(waiting, key=_turn, default=None)
        if rule is not None:
            self._turn += 1
            rule.turn = self._turn
        return rule

    def _is_quick(self, rule: ReactionRule) -> bool:
        is_tried = rule.turn > 0 and not rule.apart
        return is_tried and rule.owed_s <= self._pacer.settings.slice_s

    async def _matched(
        self, rule: ReactionRule, position: int, turns: PacedTurns, most_s: float
    ) -> Matched:
        """What a page up to the matcher's position makes."""
        after = min(rule.upto.values(), default=position)
        if after >= position:
            return Matched([], [], max(after, position))
        page = await self._store.read_entries(
            ReadEntries(
                after, position, self._settings.page_entries, PAGE_BYTES,
                prefix=rule.pattern.prefix,
                predicate=None if rule.evaluate is None else rule.predicate,
                hurried=True,
            )
        )  # fmt: skip
        matching = Matching(
            ReactionRules([rule]),
            page.entries,
            page.through,
            self._settings.step_tasks,
            most_s,
            alone=True,
        )
        await turns.run(matching.steps(), is_light=rule.is_light)
        return matching.matched()

    def _end_bout(self) -> None:
        if self.bout is not None:
            self.bout.cancel()
        self._rule_in_bout = self.bout = None


def _turn(rule: ReactionRule) -> int:
    return rule.turn

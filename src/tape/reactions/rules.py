"""Reactions made ready for matching: patterns in one trie, predicates compiled.

Pure, and the one place where a server decides what an entry makes: the matcher asks it, page by
page, and turns its answer into a step.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from tape.errors import PredicateError
from tape.journal.follow import envelope
from tape.model.entry import Entry
from tape.model.reaction import Reaction, ReactionCursor, shard_of
from tape.model.subject import Pattern, parse_pattern
from tape.model.subject_trie import SubjectTrie
from tape.ports.matching import CursorStep, NewTask
from tape.ports.predicate import Predicate
from tape.predicates import STORED_LIMITS, check

SUBJECTS_REMEMBERED = 50_000
ERROR_CHARACTERS = 500


@lru_cache(20_000)
def _checked(expression: str) -> Predicate:
    """Compiled once: every registration is followed by reading all reactions again."""
    return check(expression, limits=STORED_LIMITS)


class Matched(NamedTuple):
    """What entries up to `through` make."""

    tasks: list[NewTask]
    cursors: list[CursorStep]
    through: int


class Rule:
    """One reaction. `upto` is how far each of its shards has been considered."""

    __slots__ = (
        "counts", "debounce_ms", "evaluate", "following", "pattern", "predicate", "reaction_id",
        "shards", "upto", "with_payload",
    )  # fmt: skip

    def __init__(self, reaction: Reaction, cursors: Sequence[ReactionCursor]) -> None:
        self.reaction_id = reaction.reaction_id
        self.pattern: Pattern = parse_pattern(reaction.subject_pattern)
        self.predicate: Predicate = _checked(reaction.predicate_cel)
        self.evaluate = None if self.predicate.always_true else self.predicate.evaluate
        self.with_payload = not {"payload", "prev_value_json"}.isdisjoint(self.predicate.names)
        self.debounce_ms = reaction.debounce_ms
        self.shards = reaction.num_shards
        self.upto = {cursor.shard: cursor.last_global_seq for cursor in cursors}
        self.following = all(cursor.following for cursor in cursors)
        self.counts: dict[int, _Count] = {}

    def holds(self, view: "_View", shard: int) -> bool:
        """Whether the predicate is true; one without a result is noted, and is not."""
        try:
            return bool(self.evaluate and self.evaluate(view.envelope(self)))
        except PredicateError as error:
            count = self.count(shard)
            count.errors += 1
            count.error = f"entry {view.entry.global_seq}: {error}"[:ERROR_CHARACTERS]
            count.error_seq = view.entry.global_seq
            return False

    def count(self, shard: int) -> "_Count":
        found = self.counts.get(shard)
        if found is None:
            found = self.counts[shard] = _Count()
        return found


class _Count:
    """What one page did for one shard."""

    __slots__ = ("coalesced", "error", "error_seq", "errors", "matched")

    def __init__(self) -> None:
        self.matched = self.coalesced = self.errors = self.error_seq = 0
        self.error = ""


class _View:
    """An entry as predicates see it, its payload parsed once and only if one of them asks."""

    __slots__ = ("_seen", "entry")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._seen: dict[str, object] = {}

    def envelope(self, rule: Rule) -> dict[str, object]:
        seen = self._seen
        if not seen or (rule.with_payload and "payload" not in seen):
            seen = self._seen = envelope(self.entry, with_payload=rule.with_payload)
        return seen


class Rules:
    """Some reactions that are matched together, in one pass over the journal."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.reaction_id: rule for rule in rules}
        self._trie: SubjectTrie[Rule] = SubjectTrie()
        self._remembered: dict[str, list[Rule]] = {}
        for rule in rules:
            self._trie.add(rule.pattern, rule)

    def __len__(self) -> int:
        return len(self._rules)

    def match(self, entries: Sequence[Entry], through: int, most: int) -> Matched:
        """What they make; stops after the entry that makes `most` tasks or more."""
        new = tuple.__new__
        made: list[NewTask | None] = []
        waiting: dict[tuple[str, str], int] = {}  # where in `made` a debounced task is
        touched: set[Rule] = set()
        for entry in entries:
            rules = self._for(entry.subject)
            if not rules:
                continue
            view, seq, ts_ms, subject = _View(entry), entry.global_seq, entry.ts_ms, entry.subject
            for rule in rules:
                shard = shard_of(entry.run_id, subject, rule.shards) if rule.shards > 1 else 0
                if seq <= rule.upto.get(shard, 0):
                    continue
                if rule.evaluate is not None and not rule.holds(view, shard):
                    if rule.counts:
                        touched.add(rule)
                    continue
                touched.add(rule)
                count = rule.counts.get(shard) or rule.count(shard)
                count.matched += 1
                if rule.debounce_ms:
                    count.coalesced += _replaced(rule, entry, made, waiting)
                # One of these for every match: the tuple is made without NewTask's own frame.
                task = (rule.reaction_id, shard, seq, ts_ms, subject, rule.debounce_ms)
                made.append(new(NewTask, task))
            if len(made) >= most:
                through = seq
                break
        tasks = [task for task in made if task is not None]
        return Matched(tasks, _cursor_steps(touched, through), through)

    def advance(self, cursors: Sequence[CursorStep]) -> None:
        """The step was made: these have been considered so far."""
        for step in cursors:
            rule = self._rules[step.reaction_id]
            rule.upto[step.shard] = max(rule.upto.get(step.shard, 0), step.last_global_seq)
            rule.following = bool(step.following)

    def _for(self, subject: str) -> list[Rule]:
        found = self._remembered.get(subject)
        if found is None:
            if len(self._remembered) >= SUBJECTS_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[subject] = self._trie.match(subject)
        return found


def _replaced(
    rule: Rule,
    entry: Entry,
    made: list[NewTask | None],
    waiting: dict[tuple[str, str], int],
) -> int:
    """Take the place of an earlier entry of the same burst in this page; how many that were."""
    key = (rule.reaction_id, entry.subject)
    index = waiting.get(key)
    waiting[key] = len(made)
    if index is None:
        return 0
    earlier = made[index]
    if earlier is None or entry.ts_ms >= earlier.source_ts_ms + rule.debounce_ms:
        return 0
    made[index] = None
    return 1


def _cursor_steps(touched: Iterable[Rule], through: int) -> list[CursorStep]:
    steps: list[CursorStep] = []
    for rule in touched:
        for shard, count in rule.counts.items():
            steps.append(
                CursorStep(
                    rule.reaction_id, shard, through, 1, count.matched, count.coalesced,
                    count.errors, count.error, count.error_seq,
                )
            )  # fmt: skip
        rule.counts = {}
    return steps


def late_steps(rule: Rule, matched: Matched, *, caught_up: bool) -> list[CursorStep]:
    """The steps of a rule matched alone: every shard moves, and joins once it has caught up."""
    found = {step.shard: step for step in matched.cursors}
    blank = CursorStep(rule.reaction_id, 0, matched.through, 0, 0, 0, 0, "", 0)
    return [
        found.get(shard, blank._replace(shard=shard))._replace(following=int(caught_up))
        for shard in range(rule.shards)
    ]

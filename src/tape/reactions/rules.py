"""Reactions made ready for matching: patterns in one trie, predicates compiled.

Pure, and the one place where a server decides what an entry makes: the matcher asks it, page by
page, and turns its answer into a step.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from time import thread_time
from typing import NamedTuple

from tape.errors import PredicateError
from tape.journal.follow import LIGHT_CHARACTERS, LIGHT_ENTRIES, envelope, reads_payload
from tape.journal.pacer import FREE_S, UNTRIED_S
from tape.model.entry import Entry
from tape.model.reaction import Reaction, ReactionCursor, shard_of
from tape.model.subject import Pattern, parse_pattern
from tape.model.subject_trie import SubjectTrie
from tape.ports.matching import CursorStep, NewTask
from tape.ports.predicate import EntryPredicate
from tape.predicates import STORED_LIMITS, check

SUBJECTS_REMEMBERED = 50_000
ERROR_CHARACTERS = 500


@lru_cache(20_000)
def _checked(expression: str) -> EntryPredicate:
    """Compiled once: every registration is followed by reading all reactions again."""
    return check(expression, limits=STORED_LIMITS)


class Matched(NamedTuple):
    """What entries up to `through` make. Some reactions may have been `put_off`: they took too
    long, and go on alone from where their cursors say."""

    tasks: list[NewTask]
    cursors: list[CursorStep]
    through: int
    put_off: tuple[str, ...] = ()


class ReactionRule:
    """One reaction. `upto` is how far each of its shards has been considered.

    `owed_s` is what its predicate took beyond `FREE_S` for an entry. If that is too much it is
    `apart`: it is matched alone until entries that take less have paid it back.
    """

    __slots__ = (
        "apart", "counts", "debounce_ms", "evaluate", "following", "is_light", "owed_s",
        "pattern", "predicate", "reaction", "reaction_id", "shards", "turn", "untimed", "upto",
        "with_payload",
    )  # fmt: skip

    def __init__(self, reaction: Reaction, cursors: Sequence[ReactionCursor]) -> None:
        self.reaction = reaction
        self.reaction_id = reaction.reaction_id
        self.pattern: Pattern = parse_pattern(reaction.subject_pattern)
        self.predicate: EntryPredicate = _checked(reaction.predicate_cel)
        self.evaluate = None if self.predicate.always_true else self.predicate.evaluate
        self.is_light = self.predicate.is_light
        self.with_payload = reads_payload(self.predicate)
        self.debounce_ms = reaction.debounce_ms
        self.shards = reaction.num_shards
        self.owed_s = 0.0
        self.apart = False
        self.untimed = self.is_light
        self.turn = 0
        """When it was last its turn to be matched alone; 0 if it never was."""
        self.counts: dict[int, _Count] = {}
        self.place(cursors)

    def place(self, cursors: Sequence[ReactionCursor]) -> None:
        """Stand where the store says."""
        self.upto = {cursor.shard: cursor.last_global_seq for cursor in cursors}
        self.following = all(cursor.following for cursor in cursors)

    def owe(self, seconds: float, most_s: float) -> None:
        self.owed_s = min(most_s, max(0.0, self.owed_s + seconds))
        if self.apart and not self.owed_s:
            self.set_apart(apart=False)

    def set_apart(self, *, apart: bool) -> None:
        self.apart = apart
        self.untimed = self.is_light and not apart

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

    def envelope(self, rule: ReactionRule) -> dict[str, object]:
        seen = self._seen
        if not seen or (rule.with_payload and "payload" not in seen):
            seen = self._seen = envelope(self.entry, with_payload=rule.with_payload)
        return seen


class ReactionRules:
    """Some reactions that are matched together, in one pass over the journal."""

    def __init__(self, rules: Sequence[ReactionRule]) -> None:
        self._rules = {rule.reaction_id: rule for rule in rules}
        self._trie: SubjectTrie[ReactionRule] = SubjectTrie()
        self._remembered: dict[str, list[ReactionRule]] = {}
        self._heavy = sum(not rule.is_light for rule in rules)
        self.owed_s = sum(rule.owed_s for rule in rules if not rule.apart)
        for rule in rules:
            self._trie.add(rule.pattern, rule)

    def __len__(self) -> int:
        return len(self._rules)

    @property
    def are_light(self) -> bool:
        return not self._heavy

    def add(self, rule: ReactionRule) -> None:
        self._rules[rule.reaction_id] = rule
        self._trie.add(rule.pattern, rule)
        self._heavy += not rule.is_light
        self.owed_s += 0.0 if rule.apart else rule.owed_s
        self._remembered.clear()

    def take_out(self, reaction_id: str) -> ReactionRule:
        """One that was put off."""
        rule = self._rules.pop(reaction_id)
        self._trie.remove(rule.pattern, rule)
        self._heavy -= not rule.is_light
        self._remembered.clear()
        return rule

    def set_apart(self, rule: ReactionRule) -> None:
        if not rule.apart:
            self.owed_s -= rule.owed_s
            rule.set_apart(apart=True)

    def owe(self, rule: ReactionRule, seconds: float, most_s: float) -> None:
        """One of the rules owes so much more, or less; at most so much in all."""
        before_s = rule.owed_s
        rule.owe(seconds, most_s)
        self.owed_s += rule.owed_s - before_s

    def owes_much(self, rule: ReactionRule) -> bool:
        """Whether it owes half of what they owe on average, which one of them always does: on a
        busy machine even the quickest predicate takes too long now and then."""
        return 2 * len(self._rules) * rule.owed_s > self.owed_s

    def match(self, entries: Sequence[Entry], through: int, most: int) -> Matched:
        """What they make; stops after the entry that makes `most` tasks or more."""
        matching = Matching(self, entries, through, most)
        deque(matching.steps(), maxlen=0)
        return matching.matched()

    def advance(self, cursors: Sequence[CursorStep]) -> None:
        """The step was made: these have been considered so far."""
        for step in cursors:
            rule = self._rules[step.reaction_id]
            rule.upto[step.shard] = max(rule.upto.get(step.shard, 0), step.last_global_seq)
            rule.following = bool(step.following)

    def of(self, subject: str) -> list[ReactionRule]:
        found = self._remembered.get(subject)
        if found is None:
            if len(self._remembered) >= SUBJECTS_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[subject] = self._trie.match(subject)
        return found


class Matching:
    """Entries and rules, worked through in steps that others can come between.

    A predicate that may take long is timed, and so are all while `is_watching`. Once those of the
    rules that owe something owe more than `allowed_s` together, each of them is put off when it is
    to be asked next: its cursor stops there, it is apart from then on, and the others go on without
    it. One that was apart before is put off without being asked. If it is matched `alone` instead,
    the page ends when its predicate took so long.
    """

    def __init__(
        self,
        rules: ReactionRules,
        entries: Sequence[Entry],
        through: int,
        most: int,
        allowed_s: float = float("inf"),
        *,
        alone: bool = False,
    ) -> None:
        self._rules = rules
        self._entries = entries
        self._through = through
        self._most = most
        self._allowed_s = allowed_s
        self._alone = alone
        self._made: list[NewTask | None] = []
        self._touched: set[ReactionRule] = set()
        self._put_off: dict[ReactionRule, int] = {}
        self._spent_s = 0.0
        self.is_watching = alone

    def steps(self) -> Iterator[int]:  # noqa: C901  # one loop, written out to be quick
        """Stops before each predicate that is timed, else after every few, with how many were
        asked since."""
        new, made, touched = tuple.__new__, self._made, self._touched
        waiting: dict[tuple[str, str], int] = {}  # where in `made` a debounced task is
        asked, watching = 0, self.is_watching
        for entry in self._entries:
            rules = self._rules.of(entry.subject)
            if not rules:
                continue
            view, seq, ts_ms, subject = _View(entry), entry.global_seq, entry.ts_ms, entry.subject
            for rule in rules:
                shard = shard_of(entry.run_id, subject, rule.shards) if rule.shards > 1 else 0
                if seq <= rule.upto.get(shard, 0):
                    continue
                if rule.evaluate is not None:
                    if asked >= LIGHT_ENTRIES or not rule.untimed or watching:
                        yield asked
                        asked, watching = 0, self.is_watching
                    asked += 1
                    untimed = rule.untimed and not watching
                    holds = rule.holds(view, shard) if untimed else self._holds(rule, view, shard)
                    if not holds:
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
            if len(made) >= self._most or (self._alone and self._spent_s > self._allowed_s):
                self._through = seq
                break
            if asked >= LIGHT_ENTRIES or len(entry.payload_json) > LIGHT_CHARACTERS:
                yield asked
                asked, watching = 0, self.is_watching
        yield asked + len(self._entries)  # those that nobody was asked about are free, too

    def _holds(self, rule: ReactionRule, view: "_View", shard: int) -> bool:
        """Ask a predicate and see what it takes, unless its rule has had its time."""
        if rule in self._put_off:
            return False
        has_had_its_time = self._rules.owed_s > self._allowed_s and self._rules.owes_much(rule)
        if not self._alone and (rule.apart or has_had_its_time):
            self._rules.set_apart(rule)
            self._put_off[rule] = view.entry.global_seq - 1
            return False
        started = thread_time()
        holds = rule.holds(view, shard)
        costly_s = thread_time() - started - FREE_S
        self._spent_s += max(0.0, costly_s)
        self._rules.owe(rule, costly_s, self._allowed_s + UNTRIED_S)
        return holds

    def matched(self) -> Matched:
        tasks = [task for task in self._made if task is not None]
        steps = _cursor_steps(self._touched - self._put_off.keys(), self._through)
        for rule, through in self._put_off.items():
            behind = Matched([], _cursor_steps([rule], through), through)
            steps += [
                step._replace(last_global_seq=max(through, rule.upto.get(step.shard, 0)))
                for step in late_steps(rule, behind, caught_up=False)
            ]
        put_off = tuple(rule.reaction_id for rule in self._put_off)
        return Matched(tasks, steps, self._through, put_off)


def _replaced(
    rule: ReactionRule,
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


def _cursor_steps(touched: Iterable[ReactionRule], through: int) -> list[CursorStep]:
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


def late_steps(rule: ReactionRule, matched: Matched, *, caught_up: bool) -> list[CursorStep]:
    """The steps of a rule matched alone: every shard moves, and joins once it has caught up."""
    found = {step.shard: step for step in matched.cursors}
    blank = CursorStep(rule.reaction_id, 0, matched.through, 0, 0, 0, 0, "", 0)
    return [
        found.get(shard, blank._replace(shard=shard))._replace(following=int(caught_up))
        for shard in range(rule.shards)
    ]

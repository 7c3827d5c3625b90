"""A checked predicate: what the rest of Tape holds and asks."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tape.errors import PredicateError, PredicateTooCostly
from tape.predicates.ast import TRUE, Logic, Name, Node, walk
from tape.predicates.evaluate import Evaluation
from tape.predicates.sql import SqlCondition
from tape.predicates.to_python import Generated, compiled
from tape.predicates.to_sql import DialectName, exact, prefilter
from tape.predicates.values import EvaluationError
from tape.predicates.work import LimitError, Work

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PredicateLimits:
    """What a predicate may cost."""

    length: int = 4096
    """Bytes of the expression in UTF-8."""

    nesting: int = 24
    """Brackets within brackets."""

    steps: int = 20_000
    """The work of one evaluation, in steps of about a microsecond; see `tape.predicates.work`."""


DEFAULT_LIMITS: Final = PredicateLimits()
STORED_LIMITS: Final = PredicateLimits(length=sys.maxsize)
"""For an expression that was taken before: whoever took it knew how long it may be."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """Equal to another of the same expression. `evaluate` is the generated code itself, so that a
    call costs no more than the expression does."""

    expression: str
    always_true: bool = field(compare=False)
    names: frozenset[str] = field(compare=False, repr=False)
    """The envelope names it refers to: of an envelope it reads no others."""

    is_light: bool = field(compare=False, repr=False)
    """Whether it takes microseconds, however large an entry is."""

    evaluate: Callable[[Mapping[str, object]], bool] = field(compare=False, repr=False)
    """Whether it holds for an envelope; raises PredicateError where CEL has an error."""

    tree: Node = field(compare=False, repr=False)
    """For the translators beside this module."""

    _prefilters: dict[DialectName, SqlCondition | None] = field(
        compare=False, repr=False, default_factory=dict
    )

    def sql(self, dialect: DialectName) -> SqlCondition | None:
        """TRUE, FALSE and NULL exactly where this is true, false and an error; None where SQL
        cannot tell exactly, and `evaluate` has to."""
        return exact(self.tree, dialect)

    def sql_prefilter(self, dialect: DialectName) -> SqlCondition | None:
        """FALSE only where this is certainly false, for `WHERE (…) IS NOT FALSE`: what passes is
        for `evaluate` to decide. None where nothing can be ruled out. Translated once."""
        if dialect not in self._prefilters:
            self._prefilters[dialect] = prefilter(self.tree, dialect)
        return self._prefilters[dialect]

    @classmethod
    def of(cls, expression: str, tree: Node, limits: PredicateLimits) -> "Predicate":
        result = tree if tree.type == "bool" else Logic("and", (tree,))
        code = generated(result, limits.steps, _is_true)
        return cls(
            expression=expression,
            always_true=tree == TRUE,
            names=frozenset(node.name for node in walk(tree) if isinstance(node, Name)),
            is_light=not code.charges,
            evaluate=code.evaluate,
            tree=result,
        )


def generated(tree: Node, steps: int, result: Callable[[object], Result]) -> Generated[Result]:
    """The function of a tree, whose errors are PredicateError. `result` says which of the values
    that it can have are its results."""

    def slowly(envelope: Mapping[str, object], work: Work) -> Result:
        try:
            return result(Evaluation(envelope, work).value(tree))
        except EvaluationError as error:
            raise PredicateError(str(error)) from None
        except LimitError as error:
            raise PredicateTooCostly(str(error)) from None
        except RecursionError:
            raise PredicateError("the payload nests too deeply") from None

    return compiled(tree, slowly, steps)


def _is_true(value: object) -> bool:
    return value is True

"""Predicates: one CEL expression, checked once, decided alike by every engine."""

from tape.errors import PredicateError
from tape.predicates.check import ENVELOPE, check, check_text
from tape.predicates.checker import Checker
from tape.predicates.predicate import DEFAULT_LIMITS, STORED_LIMITS, Predicate, PredicateLimits
from tape.predicates.sql import SqlCondition
from tape.predicates.text_expression import TextExpression

__all__ = [
    "DEFAULT_LIMITS",
    "ENVELOPE",
    "STORED_LIMITS",
    "Checker",
    "Predicate",
    "PredicateError",
    "PredicateLimits",
    "SqlCondition",
    "TextExpression",
    "check",
    "check_text",
]

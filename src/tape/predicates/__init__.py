"""Predicates: one CEL expression, checked once, decided alike by every engine."""

from tape.predicates.check import ENVELOPE, check
from tape.predicates.predicate import DEFAULT_LIMITS, Predicate, PredicateError, PredicateLimits

__all__ = [
    "DEFAULT_LIMITS",
    "ENVELOPE",
    "Predicate",
    "PredicateError",
    "PredicateLimits",
    "check",
]

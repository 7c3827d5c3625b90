"""An expression whose result is a text, under the same bounds of work as a predicate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tape.predicates.ast import FunctionCall, Name, Node, walk
from tape.predicates.predicate import PredicateLimits, generated


@dataclass(frozen=True, slots=True)
class TextExpression:
    """Equal to another of the same expression. A text is what CEL's own `string()` makes of the
    value: of lists, maps and null there is none."""

    expression: str
    names: frozenset[str] = field(compare=False, repr=False)
    """The names that it reads."""

    evaluate: Callable[[Mapping[str, object]], str] = field(compare=False, repr=False)
    """The text; raises PredicateError where CEL has an error."""

    @classmethod
    def of(cls, expression: str, tree: Node, limits: PredicateLimits) -> "TextExpression":
        text = FunctionCall("string", (tree,), "string")
        return cls(
            expression=expression,
            names=frozenset(node.name for node in walk(tree) if isinstance(node, Name)),
            evaluate=generated(text, limits.steps, str).evaluate,
        )

"""Subject patterns as columns: what `model.subject_trie` decides, for one pattern."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tape.model.subject import Pattern

SUBJECT = "subject"


def subject_matches(pattern: Pattern) -> Column:
    """Whether a well-formed subject matches; never NULL."""
    subject = F.col(SUBJECT)
    if pattern.everything:
        return F.lit(True)
    if pattern.exact:
        return subject == pattern.prefix
    if "*" not in pattern.segments:
        return (subject == pattern.prefix) | subject.startswith(pattern.prefix + "/")
    # Both ends are cheaper than the expression, and most subjects fail one.
    ends = subject.startswith(pattern.prefix)
    if not pattern.deep:
        ends &= subject.endswith(pattern.text.rpartition("*")[2])
    return ends & subject.rlike(f"^{pattern.expression.pattern}$")

"""What a status check says of an effect."""

from typing import Any, NamedTuple

from tape.errors import InvalidArgument
from tape.model.effect_claim import Resolution


class Observed(NamedTuple):
    """The answer of a check. `resolution` is confirmed, failed, absent, duplicate or stuck.

    Absent means that the effect certainly did not happen and may be executed again. A check that
    cannot tell raises an error and is called again later.
    """

    resolution: str
    response: Any = None
    error: Any = None
    external_ref: str = ""

    @property
    def number(self) -> Resolution:
        try:
            return Resolution[self.resolution.upper()]
        except KeyError:
            known = ", ".join(resolution.name.lower() for resolution in Resolution)
            raise InvalidArgument(
                f"{self.resolution!r} is not one of {known}", field="resolution"
            ) from None

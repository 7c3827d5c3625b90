"""The kinds of values that requests are made of.

Bodies are taken strictly: a number in quotes is no number. What a name may hold and how long it may
be is for the bus to judge, as it does for gRPC.
"""

import re
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

OPERATOR = "http"
"""Who did what an operator does through this door."""
MOST_POSITION = 2**53 - 1
"""The largest whole number that every reader of JSON can tell from its neighbours."""

_WHOLE = re.compile(r"[0-9]{1,16}", re.ASCII)
_KEPT = re.compile("%(2F|25)")


class Body(BaseModel):
    """What comes in. A name that is not known is a mistake, not something to ignore."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Params(BaseModel):
    """What comes in with the URL, as text."""

    model_config = ConfigDict(extra="forbid")


class Reply(BaseModel):
    """What goes out."""


def _whole(text: Any) -> Any:
    if isinstance(text, str) and not _WHOLE.fullmatch(text):
        raise PydanticCustomError("whole_number", "must be a whole number")
    return text


def _integral(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _unkept(text: str) -> str:
    """`guard` leaves a slash that belongs to a name as it was written."""
    return _KEPT.sub(lambda found: "/" if found[1] == "2F" else "%", text)


PathText = Annotated[str, Path(), AfterValidator(_unkept)]
WholeNumber = Annotated[int, BeforeValidator(_whole)]
BodyNumber = Annotated[int, BeforeValidator(_integral)]
"""A whole number in a body; JSON does not tell 1.0 from 1."""

Position = Annotated[WholeNumber, Field(ge=0, le=MOST_POSITION)]
PathPosition = Annotated[int, Path(ge=1, le=MOST_POSITION)]
PageSize = Annotated[WholeNumber, Field(ge=1, le=1_000)]
PAGE = 100

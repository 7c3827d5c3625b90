"""A clock that is wrong by WRONG_BY_S seconds, for whoever starts with this folder on its path."""

import datetime
import os
import time
from datetime import datetime as _datetime
from typing import Any

_OFF_S = int(os.environ["WRONG_BY_S"])
_time, _time_ns = time.time, time.time_ns


class _EitherKind(type):
    """What C code makes is still the plain kind."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _datetime)


class _WrongDatetime(_datetime, metaclass=_EitherKind):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _datetime.now(tz) + datetime.timedelta(seconds=_OFF_S)


time.time = lambda: _time() + _OFF_S
time.time_ns = lambda: _time_ns() + _OFF_S * 1_000_000_000
datetime.datetime = _WrongDatetime  # type: ignore[misc]

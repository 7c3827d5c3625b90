"""What unwinds an app from inside a step. Not errors: an app's `except Exception` lets them by."""

from collections.abc import Iterator

from tape.errors import Diverged, RunCancelled, TapeError


class Unwind(BaseException):
    """The driver wants its app back."""


class Parked(Unwind):
    """There is nothing to do until something comes from outside."""

    def __init__(self, waiting_on: str) -> None:
        super().__init__(waiting_on)
        self.waiting_on = waiting_on


class Abandoned(Unwind):
    """The lease is lost, or the journal cannot be reached: somebody else will go on."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Unrecorded(Unwind):
    """What the app has gone on from was refused by the journal: its run fails."""

    def __init__(self, error: TapeError) -> None:
        super().__init__(str(error))
        self.error = error


class HasDiverged(Unwind):
    """The app does another step than its journal holds."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.error = Diverged(what)


class ReplayEnded(Unwind):
    """An offline replay has come to the end of what is recorded."""


def error_in(raised: BaseException) -> BaseException:
    """What a group of errors comes to: an error if there is one, else what unwinds the app."""
    leaves = list(_leaves(raised))
    for kind in (Abandoned, HasDiverged, Unrecorded, Exception, Parked, ReplayEnded):
        found = [leaf for leaf in leaves if isinstance(leaf, kind)]
        told = all(isinstance(leaf, RunCancelled) for leaf in found)  # each branch is told
        if len(found) > 1 and kind is Exception and not told:
            return RuntimeError("; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in found))
        if found:
            return found[0]
    return leaves[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error

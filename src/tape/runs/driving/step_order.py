"""The line in which the steps of an app come to its journal: the order in which they were begun.

Several branches of an app may be at a step at once. A replay comes to them in the order in which
they are begun, so they must be recorded in that order. A step that is recorded as soon as it is
begun just has its place. One that is recorded later, such as a decision that is being asked for,
holds its place until then, and what is begun behind it waits.
"""

import asyncio


class StepOrder:
    def __init__(self) -> None:
        self._last: StepPlace | None = None

    def place(self) -> "StepPlace":
        """A place behind all who are in line now, left at the end of `with`."""
        self._last = place = StepPlace(self._last)
        return place


class StepPlace:
    __slots__ = ("_left", "before", "is_left")

    def __init__(self, before: "StepPlace | None") -> None:
        self.before = None if before is None or before.is_over else before
        self.is_left = False
        self._left: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether this one and all before it are gone: who gives up lets nobody by."""
        place: StepPlace | None = self
        while place is not None and place.is_left:
            place = place.before
        if place is not self:
            self.before = place
        return place is None

    def __enter__(self) -> "StepPlace":
        return self

    def __exit__(self, *_error: object) -> None:
        self.is_left = True
        if self._left is not None:
            self._left.set_result(None)

    async def come_up(self) -> None:
        """Wait for those who were there before."""
        before = self.before
        while before is not None:
            await before.left()
            before = before.before
        self.before = None

    async def left(self) -> None:
        """Wait until it is left."""
        if not self.is_left:
            if self._left is None:
                self._left = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._left)

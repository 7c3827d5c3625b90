"""What a program declares, as far as rooms need to know it that do not run it."""

from typing import Protocol


class DeclaredApp(Protocol):
    """What `@tape.app` makes of a function."""

    @property
    def name(self) -> str: ...

    @property
    def pool(self) -> str: ...

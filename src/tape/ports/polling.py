"""What a run needs to poll a source: somebody who opens it with the credential that it names."""

from collections.abc import Awaitable
from typing import Protocol

from tape.model.subscription_spec import SourceSpec
from tape.ports.source import Source


class OpenPolledSource(Protocol):
    def __call__(self, spec: SourceSpec, name: str) -> Awaitable[Source]:
        """Open a source with its credential. `name` is shown in the log and to the broker."""


class OwnPolledSources(OpenPolledSource, Protocol):
    """One that belongs to whoever uses it."""

    async def close(self) -> None:
        """Forget the credentials that were opened; the sources are closed by then."""

"""Opens credentials where they are used: with this process's keys, from its store or its server.

A server sends what is sealed, so no clear secret crosses the wire; a process that works at a
server has the key-encryption key itself.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tape.bus import Bus, Operations
from tape.model.credential import CredentialVersion
from tape.ports.credentials import OpenCredential
from tape.telemetry import metrics
from tape.wallet.keys import Keys
from tape.wallet.opener import CredentialOpener


@asynccontextmanager
async def opening_credentials(operations: Operations) -> AsyncIterator[OpenCredential]:
    """Within this, what opens credentials of the store or the server."""
    if isinstance(operations, Bus):
        yield operations.wallet.open_credential
        return

    async def read_sealed(alias: str) -> Sequence[CredentialVersion]:
        sealed = await operations.wallet.get_sealed_credential(alias)
        return [CredentialVersion(alias, *version) for version in sealed.versions]

    keys = Keys(os.environ)
    opener = CredentialOpener(read_sealed, keys, metrics.count_opening)
    try:
        yield opener
    finally:
        await opener.close()
        await keys.close()

"""A reader of Kafka in a process of its own, for killing: `python -m … SPEC CREDENTIAL FILE`.

It accepts a message by a line in a file, and acknowledges it then. It does not stop by itself.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from tape.model.subscription_spec import SourceKind, SourceSpec
from tape.sources.by_spec import open_source
from tests.integration.sources.credentials import opened


async def read(spec: SourceSpec, credential: dict[str, object], file: Path) -> None:
    source = await open_source(spec, opened(credential), name="killed")
    with file.open("a", buffering=1) as accepted:
        while True:
            found = await source.fetch(7, 1.0)
            for received in found:
                accepted.write(f"{received.message.place} {received.message.body.decode()}\n")
            accepted.flush()
            os.fsync(accepted.fileno())
            await source.ack([received.receipt for received in found])


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    place = SourceSpec(SourceKind(told.pop("kind")), **told)
    asyncio.run(read(place, json.loads(sys.argv[2]), Path(sys.argv[3])))

"""The wire stays as it is, byte for byte: a session with every call is played against a recording.

To record it anew, where calls were added: `python -m tests.integration.grpc.test_recorded_wire`.
What is there already must not change.
"""

import asyncio
import json
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from tape.calls.call import SERVICE
from tests.integration.grpc.wire_session import Exchange, play

RECORDED = Path(__file__).parent / "recorded_wire.jsonl"


def recorded() -> list[Exchange]:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return [
        Exchange(call, b64decode(request), [b64decode(reply) for reply in replies], status)
        for call, request, replies, status in lines
    ]


async def test_requests_and_replies_are_as_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = await play(tmp_path, monkeypatch)
    expected = recorded()
    for now, before in zip(played, expected, strict=False):
        assert now == before
    assert len(played) == len(expected)


def test_every_call_is_in_the_recording() -> None:
    exchanges = recorded()
    assert {exchange.call for exchange in exchanges} == {method.name for method in SERVICE.methods}
    answered = {exchange.call for exchange in exchanges if exchange.status == "OK"}
    never = {"SkipOutboxRow", "ResumeDrainer"}  # they need a broker or an app that fails
    assert answered == {method.name for method in SERVICE.methods} - never


def record() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patching:
        played = asyncio.run(play(Path(folder), patching))
    with RECORDED.open("w") as file:
        for call, request, replies, status in played:
            texts = [b64encode(reply).decode() for reply in replies]
            file.write(json.dumps([call, b64encode(request).decode(), texts, status]) + "\n")


if __name__ == "__main__":
    record()

"""Of each burst on a subject the last entry is handled, and it alone, while a server restarts."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tape
from tests.crash import watching
from tests.crash.watching import await_rest, await_true
from tests.integration.reactions.handling import LONG_WINDOW_MS, REACTIONS, WINDOW_MS, read_notes
from tests.servers.tape_server import ServerProcess
from tests.servers.tape_worker import WorkerProcess

SUBJECTS = ("gold", "oil", "wheat")
BOUND_S = 60.0


class Recorder:
    """Records bursts and knows the last of each."""

    def __init__(self, url: str) -> None:
        self.client = tape.connect(url)
        self.last: list[int] = []
        self.entries = 0

    def burst(self, name: str, entries: int, pause_s: float) -> None:
        """On every subject at the same time."""
        numbers: Sequence[int] = ()
        for _ in range(entries):
            numbers = [self.client.record(name, entity_id=s).global_seq for s in SUBJECTS]
            time.sleep(pause_s)
        self.last += numbers
        self.entries += entries * len(SUBJECTS)


@pytest.fixture
def recorder(store_url: str) -> Iterator[Recorder]:
    recorder = Recorder(store_url)
    yield recorder
    recorder.client.close()


@pytest.mark.parametrize(
    "store_url", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True
)
def test_the_last_of_each_burst_is_handled(
    store_url: str, recorder: Recorder, tmp_path: Path
) -> None:
    def worker(url: str) -> WorkerProcess:
        arguments = ("-m", "tests.integration.reactions.handling", url, str(tmp_path))
        return WorkerProcess(
            *arguments, folder=Path(__file__).parents[3], log=tmp_path / "workers.log"
        )

    def handled(reaction_id: str) -> list[int]:
        return sorted(m.source for m in read_notes(tmp_path) if m.reaction_id == reaction_id)

    def pause_between_bursts() -> None:
        """A new burst begins when the window of the one before is over: that is the clock's."""
        time.sleep(1.5 * WINDOW_MS / 1000)

    with ServerProcess(store_url) as server, worker(server.url) as one, worker(store_url) as two:
        await_true(
            lambda: len(watching.query(store_url, "SELECT 1 FROM tape_reactions")) == REACTIONS,
            BOUND_S,
            lambda: one.said + two.said,
        )
        recorder.burst("burst", 8, 0.03)
        pause_between_bursts()
        recorder.burst("burst", 1, 0)
        pause_between_bursts()
        await_true(lambda: handled("debounced") == recorder.last, BOUND_S, lambda: "too few")
        short, recorder.last, recorder.entries = recorder.last, [], 0

        def restart() -> int:
            code = server.stop()
            server.start()
            return code

        recorder.burst("long_burst", 3, 0.02)
        with ThreadPoolExecutor(1) as elsewhere:
            restarted = elsewhere.submit(restart)
            while not restarted.done():  # however long that takes, it is one burst
                recorder.burst("long_burst", 1, 0.1)
        assert restarted.result() == 0
        recorder.burst("long_burst", 3, 0.02)
        long = recorder.last[-len(SUBJECTS) :]
        await_rest(store_url, lambda: None, BOUND_S)
        assert [one.stop(), two.stop()] == [0, 0]
    assert handled("debounced") == sorted(short)
    assert handled("long-debounced") == sorted(long)
    coalesced = "SELECT sum(coalesced) FROM tape_reaction_cursors WHERE reaction_id = '{}'"
    assert watching.query(store_url, coalesced.format("debounced")) == [(7 * len(SUBJECTS),)]
    replaced = recorder.entries - len(long)
    assert watching.query(store_url, coalesced.format("long-debounced")) == [(replaced,)]
    assert LONG_WINDOW_MS > 2 * WINDOW_MS

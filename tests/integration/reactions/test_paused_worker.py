"""A worker that sleeps past its lease: another does the work, and its waking harms nobody."""

from collections import Counter
from pathlib import Path

import tape
from tests.crash import watching
from tests.crash.watching import await_true
from tests.integration.reactions.handling import LET_GO, REACTIONS, Moment, read_notes
from tests.servers.tape_worker import WorkerProcess

BOUND_S = 60.0


def test_its_task_is_done_by_another_and_it_goes_on_afterwards(
    postgres_url: str, tmp_path: Path
) -> None:
    def worker() -> WorkerProcess:
        arguments = ("-m", "tests.integration.reactions.handling", postgres_url, str(tmp_path))
        return WorkerProcess(
            *arguments,
            folder=Path(__file__).parents[3],
            log=tmp_path / "workers.log",
            env={"TAPE_LEASE_MS": "4000"},
        )

    def seen(what: str) -> list[Moment]:
        return [moment for moment in read_notes(tmp_path) if moment.what == what]

    def ended(count: int) -> bool:
        return len(watching.query(postgres_url, "SELECT 1 FROM tape_task_ended")) == count

    with tape.connect(postgres_url) as client:
        client.record("the first entry makes the tables")
        with worker() as first, worker() as second:
            await_true(
                lambda: len(client.list_reactions()) == REACTIONS, BOUND_S, lambda: first.said
            )
            client.record("slow")
            await_true(lambda: len(seen("start")) == 1, BOUND_S, lambda: first.said)
            busy = next(file for file in tmp_path.glob("*.notes") if file.stat().st_size)
            sleeper, other = first, second
            if busy.name.startswith(f"{second.pid}-"):
                sleeper, other = second, first
            sleeper.pause()
            (tmp_path / LET_GO).touch()
            await_true(lambda: ended(1), BOUND_S, lambda: other.said)
            sleeper.resume()
            await_true(lambda: len(seen("end")) == 2, BOUND_S, lambda: sleeper.said)
            client.record_many([tape.event("slow") for _ in range(2)])
            await_true(lambda: ended(3), BOUND_S, lambda: first.said + second.said)
            assert [first.stop(), second.stop()] == [0, 0]
    attempts = Counter((moment.source, moment.attempt) for moment in seen("start"))
    assert attempts == {(2, 1): 1, (2, 2): 1, **{(seq, 1): 1 for seq in range(3, 5)}}
    (slow,) = [row for row in watching.query(postgres_url, watching.TALLIES) if row[0] == "slow"]
    assert slow == ("slow", 0, 0, 0)

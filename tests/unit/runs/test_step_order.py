"""The line of an app's steps: in the order in which they were begun, whoever is done first."""

import asyncio

from tape.runs.driving.step_order import StepOrder, StepPlace


class Steps:
    """Steps in a line that come up in an order to look at."""

    def __init__(self) -> None:
        self.line = StepOrder()
        self.came: list[str] = []

    def begin(self, name: str, *, after: asyncio.Event | None = None) -> "asyncio.Task[None]":
        place = self.line.place()
        return asyncio.create_task(self._step(name, place, after or asyncio.Event()))

    async def _step(self, name: str, place: StepPlace, after: asyncio.Event) -> None:
        with place:
            await place.come_up()
            self.came.append(name)
            await after.wait()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def given(event: asyncio.Event) -> asyncio.Event:
    event.set()
    return event


async def test_each_waits_for_those_before() -> None:
    steps = Steps()
    gates = [asyncio.Event() for _ in range(3)]
    tasks = [steps.begin(f"step {n}", after=gate) for n, gate in enumerate(gates)]
    await turns()
    assert steps.came == ["step 0"]
    gates[0].set()
    await turns()
    assert steps.came == ["step 0", "step 1"]
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks)
    assert steps.came == ["step 0", "step 1", "step 2"]


async def test_one_that_gives_up_lets_nobody_by() -> None:
    steps = Steps()
    first_goes = asyncio.Event()
    first = steps.begin("first", after=first_goes)
    gives_up = steps.begin("gives up")
    third = steps.begin("third", after=given(asyncio.Event()))
    await turns()
    gives_up.cancel()
    fourth = steps.begin("fourth", after=given(asyncio.Event()))
    await turns()
    assert steps.came == ["first"]
    first_goes.set()
    await asyncio.gather(first, third, fourth)
    assert steps.came == ["first", "third", "fourth"]


async def test_nobody_before_is_nobody_to_wait_for() -> None:
    """Not even for a turn of the event loop: a replay comes to its steps in the same way."""
    line = StepOrder()
    with line.place():
        pass
    with line.place() as place:
        come_up = place.come_up()
        try:
            come_up.send(None)
        except StopIteration:
            return
    raise AssertionError("it waited")


async def test_ten_thousand_who_gave_up_are_no_burden() -> None:
    line = StepOrder()
    first = line.place()
    for _ in range(10_000):
        with line.place():
            pass
    last = line.place()
    assert not last.is_over
    with first:
        pass
    with last:
        await last.come_up()
    assert last.is_over

"""A run that draws and waits, begun with one version and gone on with by another.

`python draws.py STORE begin` starts it and drives it to its gate; `… end` opens the gate and drives
it to its end. Prints `ready` when the store is open, waits for a line, works, and prints `done`.
"""

import asyncio
import sys
from pathlib import Path

import tape
from tape.config import ReactorsSettings, Settings
from tape.worker import WorkerOptions, work

URL, PART = sys.argv[1], sys.argv[2]
SETTINGS = Settings(reactors=ReactorsSettings(poll_s=0.1))
BOUND_S = 60.0


@tape.app("draws")
async def draws(ctx: tape.Context) -> list[str]:
    drawn = [str(tape.uuid()), tape.now().isoformat()]
    await ctx.gate("go")
    return drawn


async def main() -> None:
    async with tape.connect_async(URL, settings=SETTINGS) as client:
        print("ready", Path(tape.__file__).parent, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        if PART == "begin":
            run_id = (await client.start_run(draws)).run_id
        else:
            (run,) = await client.list_runs()
            run_id = run.run_id
            await client.send_signal(run_id, "go")
        stop = asyncio.Event()
        options = WorkerOptions(url=URL, settings=SETTINGS, owner=PART)
        worker = asyncio.create_task(work(options, stop=stop))
        async with asyncio.timeout(BOUND_S):
            if PART == "begin":
                async with client.follow(f"/tape/gate/waiting/go/{run_id}") as entries:
                    async for _waiting in entries:
                        break
            else:
                await client.run_result(run_id)
        stop.set()
        await worker
    print("done", flush=True)


asyncio.run(main())

"""A type checker knows what a run returns. `assert_type` is checked by mypy, which runs here as it
does for a program that uses Tape."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_type

import tape
from tape.runs.declare import ChildId


@tape.app("checkout")
async def checkout(ctx: tape.Context, order: dict[str, Any]) -> dict[str, int]:
    return {"cents": 1}


@tape.app("shipping", version="2", pool="blue")
def shipping(ctx: tape.SyncContext) -> str:
    child = ctx.start(checkout, {"id": "17"})
    assert_type(child, ChildId[dict[str, int]])
    assert_type(ctx.result(child), dict[str, int])
    assert_type(ctx.result(ctx.start("checkout")), Any)
    assert_type(ctx.result("an id"), Any)
    assert_type(ctx.cancel_timer("t"), bool)
    assert_type(ctx.set_value("ns", "k", 1, if_version=3), int)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.patched("p"), bool)
    ctx.sleep(seconds="long")  # refused
    ctx.gate("g", timeout=5)  # refused
    return "shipped"


@tape.app("parent")
async def parent(ctx: tape.Context) -> None:
    run_id = await ctx.start(shipping, pool="blue", name="first")
    ids: list[str] = [run_id]
    assert_type(await ctx.result(run_id), str)
    assert_type(await ctx.result(await ctx.start(checkout)), dict[str, int])
    assert_type(await ctx.result(ids[0]), Any)


@tape.app("untyped")
def untyped(ctx, order=None):  # type: ignore[no-untyped-def]
    return order


assert_type(checkout, tape.App[dict[str, int]])
assert_type(shipping, tape.App[str])
assert_type(untyped, tape.App[Any])
assert_type(tape.App("by hand", lambda ctx: 5), tape.App[int])


def blocking(client: tape.TapeClient) -> None:
    assert_type(client.run(checkout, {"id": "17"}, invocation_id="17"), dict[str, int])
    assert_type(client.run(shipping, pool="blue", user_id="ada", session_id="s"), str)
    assert_type(client.run("checkout", {}), Any)
    wider: Mapping[str, int] = client.run(checkout)
    client.run(parent)
    client.run(shipping, pol="blue")  # refused


async def asynchronous(client: tape.AsyncTapeClient) -> None:
    assert_type(await client.run(checkout, {"id": "17"}), dict[str, int])
    assert_type(await client.run(shipping, invocation_id="17"), str)
    assert_type(await client.run("shipping"), Any)
    wrong: int = await client.run(shipping)  # refused
    tape.conect  # refused
"""


@pytest.mark.timeout(600)
def test_what_a_run_returns(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["--strict", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--follow-imports=silent", program.name],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    refused = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert {int(line.split(":")[1]) for line in errors} == refused, checked.stdout + checked.stderr

"""Apps that messages run: they say who they are, and which pool's worker has run them."""

import os
from typing import Any

import tape


def _said(app: str, given: Any) -> dict[str, Any]:
    message = given["message"]
    worked_in = os.environ["WORKS_IN"]
    return {"app": app, "worked_in": worked_in, "id": message["id"], "trace": message["trace"]}


@tape.app("keep")
async def keep(ctx: tape.Context, given: Any) -> Any:
    return _said("keep", given)


@tape.app("alarm")
async def alarm(ctx: tape.Context, given: Any) -> Any:
    return _said("alarm", given)

"""Loaded by schemathesis: nobody drives runs in the fuzzed server, so no request waits for one."""

from typing import Any

import schemathesis

LONG_S = 0.05


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body = case.body
    items = body.get("items") if isinstance(body, dict) else None
    for part in (body, *(items if isinstance(items, list) else ())):
        if isinstance(part, dict):
            for name in ("wait_s", "await_s"):
                wait = part.get(name)
                if isinstance(wait, int | float) and LONG_S < wait <= 60:
                    part[name] = LONG_S

"""What a walk found, for people and as JSON."""

import json
import sys
from collections.abc import Iterable

from scripts.walk_docs.walk import Walked


def print_progress(walked: Walked) -> None:
    state = "FAULT" if walked.faults else "ok"
    place = f"{walked.page} on {walked.python}, extra {walked.extra}"
    counts = f"{walked.run} of {walked.blocks} blocks run, {walked.compared} compared"
    print(f"{state:5} {place}: {counts}, {walked.seconds:.0f} s", file=sys.stderr, flush=True)
    for fault in walked.faults:
        print("      " + fault.replace("\n", "\n      "), file=sys.stderr, flush=True)


def print_json(all_walked: Iterable[Walked]) -> None:
    for walked in all_walked:
        print(json.dumps(walked._asdict()))


def print_table(all_walked: list[Walked]) -> None:
    """A line a page: its blocks, and `ok` or the number of faults for each Python and extra."""
    rounds = list(dict.fromkeys((walked.python, walked.extra) for walked in all_walked))
    pages = list(dict.fromkeys(walked.page for walked in all_walked))
    by_place = {(walked.page, walked.python, walked.extra): walked for walked in all_walked}
    header = [
        "page",
        "blocks",
        "run",
        "compared",
        *(f"{python} {extra}" for python, extra in rounds),
    ]
    rows = [header]
    for page in pages:
        results = [by_place.get((page, *where)) for where in rounds]
        walked = next(result for result in results if result)
        states = [_state(result) for result in results]
        rows.append([page, str(walked.blocks), str(walked.run), str(walked.compared), *states])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    reasons = {
        f"{walked.page} {line}": reason
        for walked in all_walked
        for line, reason in walked.not_run.items()
    }
    print(f"\nnot run: {len(reasons)} blocks")
    for place, reason in reasons.items():
        print(f"  {place}: {reason}")


def _state(walked: Walked | None) -> str:
    if walked is None:
        return "-"
    return f"{len(walked.faults)} faults" if walked.faults else "ok"

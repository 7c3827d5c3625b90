"""`tape bench`: our figures beside a peer's, from the benchmarks in the repository."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import click
import orjson
from rich.table import Table

from tape.cli.command_tree import ExampleCommand
from tape.cli.output import console, notes, print_json
from tape.errors import NotFound

TABLE_WIDTH = 170
COLUMNS: dict[str, Literal["left", "right"]] = {
    "bench": "left",
    "ours": "right",
    "unit": "left",
    "theirs": "right",
    "against": "left",
    "ratio": "right",
    "bar": "left",
    "spread": "right",
    "n": "right",
}
FIELDS = ("bench", "unit", "ours", "against", "theirs", "ratio", "n", "spread")


@click.command(cls=ExampleCommand, example="tape bench tasks --out build/bench.jsonl")
@click.argument("area")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the JSON lines to FILE.",
)
@click.pass_context
def bench(ctx: click.Context, area: str, as_json: bool, out: Path | None) -> None:
    """Run the benchmarks of AREA, or of all areas with `all`; `tasks` means every `tasks.…`.

    The ratio is ours divided by theirs: for a latency, smaller is better. Exits with 1 if a result
    misses its bar.
    """
    package = _package()
    groups = (name.partition(".")[0] for name in package.AREAS)
    if area not in ("all", *package.AREAS, *groups):
        raise click.UsageError(f"{area!r} is no area; there are {', '.join(package.AREAS)}, all")
    results = []
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
    written = out.open("wb") if out else None
    try:
        for result in package.run(area):
            record = as_record(result)
            results.append(record)
            if as_json:
                print_json(record)
            else:
                notes().print(
                    f"{record['bench']}: {_figure(record['ratio'])} x {record['against']}"
                )
            if written:
                written.write(orjson.dumps(record) + b"\n")
                written.flush()
    finally:
        if written:
            written.close()
    if not as_json:
        wide = console()
        wide.width = max(wide.width, TABLE_WIDTH)
        wide.print(_table(results))
    if any(record.get("met") is False for record in results):
        ctx.exit(1)


def as_record(result: Any) -> dict[str, Any]:
    """The fields of a result, in their order; bar and met only where it has a bar."""
    record = {name: getattr(result, name) for name in FIELDS}
    if getattr(result, "bar", None):
        record |= {"bar": result.bar, "met": result.met}
    return record


def _package() -> Any:
    """The benchmarks live in the repository and not in the wheel, so a checkout is needed."""
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds text
    try:
        return import_module("benchmarks")
    except ModuleNotFoundError as error:
        if error.name != "benchmarks":
            raise
        raise NotFound(
            "there is no benchmarks package here; run this in a checkout of the repository"
        ) from None


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in COLUMNS.items():
        table.add_column(name, justify=justify, no_wrap=True)
    for record in results:
        cells = {name: _figure(record.get(name, "")) for name in COLUMNS}
        table.add_row(*(cells | {"bar": _bar(record)}).values())
    return table


def _bar(record: Mapping[str, Any]) -> str:
    if "bar" not in record:
        return ""
    return f"{_figure(record['bar'])} {'met' if record['met'] else 'missed'}"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

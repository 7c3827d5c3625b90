"""`tape prune`: drop old entries that are archived and that nobody needs any more."""

import asyncio
from pathlib import Path

import click
from rich.progress import Progress

from tape.cli.command_tree import ExampleCommand
from tape.cli.output import notes, print_json, say
from tape.cli.target import Target, target_options
from tape.errors import InvalidArgument, SparkUnavailable
from tape.journal.retention import (
    Bound,
    PrunePlan,
    PruneResult,
    find_recorded_before,
    parse_age,
    plan_prune,
)
from tape.journal.retention import (
    prune as prune_journal,
)
from tape.journal_relay.cursor_file import CursorFile
from tape.ports.store import Store
from tape.stores.by_url import display, open_store


@click.command(cls=ExampleCommand, example="tape prune --lake lake/ --older-than 30d --dry-run")
@click.option("--lake", required=True, metavar="PATH", help="Lake that holds the archived entries.")
@click.option(
    "--older-than",
    default="7d",
    show_default=True,
    metavar="AGE",
    help="Only entries older than this. An idempotency key is known as long as its entry.",
)
@click.option(
    "--grace",
    default="1h",
    show_default=True,
    metavar="AGE",
    help="Only entries that were archived longer ago than this.",
)
@click.option(
    "--keep-from",
    type=click.IntRange(min=1),
    metavar="SEQ",
    help="Keep this entry and all later ones.",
)
@click.option(
    "--cursor",
    "cursors",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep what the relay with this cursor file has not sent yet. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@target_options
@click.pass_obj
def prune(
    target: Target, *, lake: str, older_than: str, grace: str, keep_from: int | None,
    cursors: tuple[Path, ...], dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Remove entries from the journal that are archived in a lake.

    An entry is pruned only after every reaction, the matcher and every named cursor has passed it,
    and if no unfinished run and no queued or dead-lettered task needs it. You can stop it and run
    it again at any time. Followers with an older cursor get an error, not a gap.
    """  # fmt: skip
    url = target.store_to_open(changes=True)
    older_ms = parse_age(older_than, field="--older-than")
    grace_ms = parse_age(grace, field="--grace")
    named = [_relay_bound(path) for path in cursors]
    if keep_from is not None:
        named.append(Bound(f"--keep-from {keep_from}", keep_from - 1))

    async def work() -> tuple[PrunePlan, PruneResult | None]:
        store = await open_store(url, target.settings, creating=False)
        try:
            after, archived = await _archived(store, lake, grace_ms)
            bounds = [*named, *archived]
            bounds += await _age_bounds(store, older_than, older_ms)
            plan = await plan_prune(store, after, bounds)
            return plan, None if dry_run else await _pruned(store, plan, quiet=as_json)
        finally:
            await store.close()

    plan, outcome = asyncio.run(work())
    if as_json:
        print_json(_record(plan, outcome))
    else:
        _print(f"prune of {display(url)}", plan, outcome)


def _relay_bound(path: Path) -> Bound:
    position = CursorFile(path).read()
    if position is None:
        raise InvalidArgument(f"there is no file {path}", field="--cursor")
    if not isinstance(position, int):
        raise InvalidArgument(
            f"{path} is a cursor file of an old version: start its relay once to convert it",
            field="--cursor",
        )
    return Bound(f"relay {path}", position)


async def _archived(store: Store, path: str, grace_ms: int) -> tuple[int, list[Bound]]:
    """Where the lake begins, and how far it is certain to have everything."""
    try:
        from tape.pipeline.lake.seam import prunable
    except ModuleNotFoundError as missing:
        raise SparkUnavailable(
            f"reading a lake needs {missing.name}: pip install 'tape-bus[spark]'"
        ) from missing
    found = await prunable(store, path, grace_ms)
    return found.after, [Bound(name, upto) for name, upto in found.bounds]


async def _age_bounds(store: Store, older_than: str, older_ms: int) -> list[Bound]:
    from tape.ports.clock import system_clock

    if not older_ms:
        return []
    upto = await find_recorded_before(store, system_clock() - older_ms, store.head)
    return [Bound(f"--older-than {older_than}", upto)]


async def _pruned(store: Store, plan: PrunePlan, *, quiet: bool) -> PruneResult:
    out = notes()
    if quiet or not out.is_terminal:
        return await prune_journal(store, plan)
    with Progress(console=out, transient=True) as bar:
        task = bar.add_task("prune", total=max(plan.upto - plan.after, 0))
        return await prune_journal(
            store, plan, on_progress=lambda at, _upto: bar.update(task, completed=at - plan.after)
        )


def _record(plan: PrunePlan, outcome: PruneResult | None) -> dict[str, object]:
    held = plan.held_by if outcome is None else outcome.held_by
    return {
        "dry_run": outcome is None, "removed": outcome.removed if outcome else 0,
        "would_reach": plan.upto,
        "pruned_through": outcome.pruned_through if outcome else plan.pruned_through,
        "head": plan.head, "kept": outcome.kept if outcome else {},
        "held_by": [bound._asdict() for bound in held],
        "bounds": [bound._asdict() for bound in plan.bounds],
    }  # fmt: skip


def _print(what: str, plan: PrunePlan, outcome: PruneResult | None) -> None:
    if outcome is None:
        would = plan.upto > plan.pruned_through
        reach = f"entries {plan.pruned_through + 1} to {plan.upto}" if would else "nothing"
        say(f"{what}: {reach} would be removed")
        held = plan.held_by
    else:
        say(f"{what}: {outcome.removed:,} entries removed; pruned through {outcome.pruned_through}")
        held = outcome.held_by
    kept = outcome.kept if outcome else {}
    digits = max((len(f"{count:,}") for count in kept.values()), default=0)
    for why, count in kept.items():
        say(f"  {count:>{digits},} kept below that for {why}")
    digits = max((len(str(bound.upto)) for bound in held), default=0)
    for bound in held:
        say(f"  held at {bound.upto:>{digits}} by {bound.name}")

"""The closing words: what happened, in figures a newcomer can read, and what to type next."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tape.cli.demo.proof import Day
from tape.cli.demo.stage import Stage


def print_summary(stage: Stage, day: Day, seconds: float, kept: str) -> None:
    out = stage.out
    out.rule("The day in figures")
    out.print(_recorded(day))
    out.print(
        f"\n{day.entries:,} entries in {seconds:.1f} s with all the checking, each on the disk "
        "before its\nproducer was answered."
    )
    out.print(
        f"{stage.sent:,} events were sent; {stage.collapsed:,} of them were retries and "
        "became no second entry.\n"
    )
    out.print(_followers(stage))
    _undecided(stage, out)
    broken = [promise for promise in stage.promises if not promise.held]
    if broken:
        out.print(f"\n[bold red]{len(broken)} of {len(stage.promises)} promises were broken:[/]")
        for promise in broken:
            out.print(f"  ✗ {promise.text}")
        return
    out.print(f"\n[bold green]All {len(stage.promises)} promises held.[/]\n")
    _next(out, kept)


def _recorded(day: Day) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("recorded")
    table.add_column("entries", justify="right")
    for name, count in day.types.most_common():
        table.add_row(name, f"{count:,}")
    return table


def _followers(stage: Stage) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("follower")
    table.add_column("saw", justify="right")
    table.add_column("undecided", justify="right")
    table.add_column("asked for", overflow="fold")
    for name, follower in stage.followers.items():
        asked = follower.pattern + (f"\nwhere {follower.where}" if follower.where else "")
        table.add_row(name, f"{len(follower.seen):,}", f"{follower.undecided:,}", Text(asked))
    return table


def _undecided(stage: Stage, out: Console) -> None:
    count = stage.followers["risk"].undecided
    if count:
        out.print(
            f"\n{count:,} fills came without a notional. A predicate has no answer for those: they "
            "are\ncounted and shown, not quietly taken for false."
        )


def _next(out: Console, kept: str) -> None:
    out.print("[bold]What to type next[/]")
    if kept:
        pattern = "/tape/event/recorded/risk.breached/**"
        out.print(f"  tape tail --store {kept} --no-follow '{pattern}'", markup=False)
        out.print(f"  tape values history desk exposure_limit --store {kept}", markup=False)
        out.print(f"  tape runs --store {kept}", markup=False)
    else:
        out.print("  tape demo --keep day        keep the journal of the day and look around in it")
    out.print(
        "  tape serve                  a server, its timeline on http://127.0.0.1:7879/; then"
    )
    out.print("                              in two other terminals:")
    out.print("  tape tail")
    out.print("""  tape record hello --payload '{"from": "me"}'""", markup=False)

"""What a job did: words and numbers in columns for people, one JSON object for programs."""

import json
import sys
from typing import TYPE_CHECKING

import click

from tape.cli.output import print_table, printable, say
from tape.model.json_text import terminal_safe
from tape.settings import MIB
from tape.stores.by_url import display

if TYPE_CHECKING:  # Spark is loaded only where a job really runs
    from tape.pipeline.job import Summary


def print_summary(summary: "Summary", store: str, *, as_json: bool) -> None:
    if as_json:
        record = {
            "job": summary.job, **summary.counts, "seconds": round(summary.seconds, 3),
            **summary.facts, "failed": summary.failed,
        }  # fmt: skip
        sys.stdout.write(terminal_safe(json.dumps(record, default=str)) + "\n")
        sys.stdout.flush()
        return
    ended = "failed" if summary.failed else "done"
    say(f"{summary.job} of {display(store)}: {ended} in {summary.seconds:.1f} s")
    print_aligned(summary.counts, summary.facts)
    if summary.failed:
        click.echo(printable(f"error: {summary.job}: {summary.failed}"), err=True)


def print_aligned(counts: dict[str, int], facts: dict[str, object]) -> None:
    """Counts with their digits below one another, then facts; lists of records as tables."""
    plain = {name: _plain(name, fact) for name, fact in facts.items() if not _is_many(fact)}
    wide = max((len(_words(name)) for name in (*counts, *plain)), default=0)
    digits = max((len(f"{count:,}") for count in counts.values()), default=0)
    for name, count in counts.items():
        say(f"  {_words(name):{wide}}  {count:>{digits},}")
    for name, text in plain.items():
        say(f"  {_words(name):{wide}}  {text}")
    for name, fact in facts.items():
        if isinstance(fact, dict) and fact:
            say(f"  {_words(name)}:")
            inner = max(len(str(key)) for key in fact)
            for key, value in fact.items():
                say(f"    {key!s:{inner}}  {_plain(str(key), value)}")
        elif isinstance(fact, list) and fact:
            _print_list(name, fact)


def _print_list(name: str, items: list[object]) -> None:
    say(f"  {_words(name)}:")
    records = [item for item in items if isinstance(item, dict)]
    if len(records) != len(items):
        for item in items:
            say(f"    {item}")
        return
    columns = list(dict.fromkeys(str(key) for record in records for key in record))
    rows = [[_plain(key, record.get(key, "")) for key in columns] for record in records]
    print_table([_words(key).upper() for key in columns], rows)


def _is_many(fact: object) -> bool:
    return isinstance(fact, dict | list)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(name: str, fact: object) -> str:
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, int):
        return _size(fact) if name.startswith("bytes") else f"{fact:,}"
    return str(fact)


def _size(count: int) -> str:
    return f"{count / MIB:,.1f} MiB" if count >= MIB else f"{count / 1024:,.1f} KiB"

"""An audit's report, as a page, as Markdown or as JSON. What users wrote is never markup in it."""

import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tape.errors import InvalidArgument
from tape.pipeline.jobs.audit.finding import Result, Violation

_MARKS: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~:@-])")
_HEADINGS: Final = ("entry", "run", "key", "found")
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;text-align:left;"
    "padding:.25rem .75rem .25rem 0;vertical-align:top;overflow-wrap:anywhere}"
    ".error{color:#b00020}.warning{color:#8a6100}.ok{color:#1b6e3c}"
)


class Audited(NamedTuple):
    """What was audited, and what came of it."""

    store: str
    after: int
    upto: int
    entries: int
    results: Sequence[Result]

    @property
    def broken(self) -> list[Result]:
        return [result for result in self.results if result.count]

    def count(self, severity: str) -> int:
        return sum(r.count for r in self.results if r.check.severity == severity)

    @property
    def extent(self) -> str:
        return f"entries {self.after + 1} to {self.upto}"

    @property
    def headline(self) -> str:
        errors, warnings = self.count("error"), self.count("warning")
        checked = f"{len(self.results)} checks of {self.entries:,} entries"
        if not errors and not warnings:
            return f"{checked}: everything holds"
        return f"{checked}: {errors:,} errors, {warnings:,} warnings"


def plain(text: str) -> str:
    """Text on one line, with nothing in it that a terminal or a page would obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def to_json(audited: Audited) -> str:
    document = {
        "store": audited.store,
        "after": audited.after,
        "upto": audited.upto,
        "entries": audited.entries,
        "errors": audited.count("error"),
        "warnings": audited.count("warning"),
        "checks": [
            {
                "name": result.check.name,
                "holds": result.check.holds,
                "live": result.check.live,
                "severity": result.check.severity,
                "count": result.count,
                "violations": [violation._asdict() for violation in result.violations],
            }
            for result in audited.results
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def to_markdown(audited: Audited) -> str:
    def cell(text: str) -> str:
        return _MARKS.sub(r"\\\1", html.escape(plain(text), quote=False))

    lines = [
        "# Audit",
        "",
        f"{cell(audited.store)}, {audited.extent}. {audited.headline}.",
    ]
    for result in audited.broken:
        lines += [
            "",
            f"## {result.check.name} ({result.check.severity}, {result.count:,})",
            "",
            result.check.holds,
            "",
            "| " + " | ".join(_HEADINGS) + " |",
            "|" + " --- |" * len(_HEADINGS),
            *("| " + " | ".join(map(cell, _shown(v))) + " |" for v in result.violations),
        ]
        if result.count > len(result.violations):
            lines += ["", f"and {result.count - len(result.violations):,} more"]
    lines += ["", "## What was checked", "", "| check | what must hold | found |",
              "| --- | --- | ---: |"]  # fmt: skip
    lines += [
        f"| {cell(r.check.name)} | {cell(r.check.holds)} | {r.count:,} |" for r in audited.results
    ]
    return "\n".join(lines) + "\n"


def to_html(audited: Audited) -> str:
    esc = html.escape
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Audit</title>",
        f"<style>{_STYLE}</style><h1>Audit</h1>",
        f"<p>{esc(plain(audited.store))}, {audited.extent}. {esc(audited.headline)}.</p>",
    ]
    for result in audited.broken:
        check = result.check
        parts.append(
            f"<h2 class={check.severity}>{esc(check.name)} ({check.severity}, {result.count:,})"
            f"</h2><p>{esc(check.holds)}</p>{_table(_HEADINGS, map(_shown, result.violations))}"
        )
        if result.count > len(result.violations):
            parts.append(f"<p>and {result.count - len(result.violations):,} more</p>")
    rows = ((r.check.name, r.check.holds, f"{r.count:,}") for r in audited.results)
    parts.append("<h2>What was checked</h2>")
    parts.append(_table(("check", "what must hold", "found"), rows))
    return "".join(parts) + "</html>\n"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(plain(text))}" for text in row) for row in rows
    )
    return f"<table><tr>{head}{body}</table>"


def _shown(violation: Violation) -> list[str]:
    seq = str(violation.global_seq) if violation.global_seq else ""
    return [seq, violation.run_id, violation.key, violation.found]


FORMS: Final[dict[str, Callable[[Audited], str]]] = {
    ".html": to_html,
    ".md": to_markdown,
    ".json": to_json,
}


def form_of(file: str) -> Callable[[Audited], str]:
    form = FORMS.get(Path(file).suffix.lower())
    if form is None:
        raise InvalidArgument(f"{file!r} must end in one of {', '.join(FORMS)}", field="report")
    return form

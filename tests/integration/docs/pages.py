"""The examples of a page, as a reader would type them.

| block | what the reader does with it |
|---|---|
| `console` | types what is after `$ ` and sees the lines below it |
| `python`, `yaml` that begins with `# NAME.py`, `# NAME.yaml` | saves it under that name |
| `python` before a `text` block | runs it and sees that text |
| any other `python` | runs it |
| `sql` | types it into psql |

`…` stands for anything within a line. All examples of a page are followed in order, in one folder.

Every other block says why it is not run, in a comment on the line before it:
`<!-- not run: a diagram -->`. `<!-- walk only: REASON -->` is before what `make walk` runs and the
suite does not.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
# What pages print: gRPC, HTTP, NATS, OTLP, Postgres, health.
PORTS = (7878, 7879, 4222, 4317, 5432, 8080)
POSTGRES = "postgres://postgres@127.0.0.1:5432/desk"
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>not run|walk only): (?P<reason>[^\n]+) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NAMED = re.compile(r"# ([\w-]+\.(?:py|yaml))\n")


class Example(NamedTuple):
    """A command and what it prints."""

    command: str
    printed: list[str]


class Install(NamedTuple):
    """A command that installs packages. What pip prints is not compared."""

    command: str


class Program(NamedTuple):
    """A program and what it prints; None where the page does not say."""

    source: str
    printed: list[str] | None

    @property
    def file_name(self) -> str | None:
        named = _NAMED.match(self.source)
        return named[1] if named else None


class Saved(NamedTuple):
    """A file that commands and programs after it use."""

    file_name: str
    source: str


class Statements(NamedTuple):
    """SQL for psql."""

    source: str
    url: str


Step = Example | Install | Program | Saved | Statements


class Block(NamedTuple):
    """A block of a page: what to do with it, or why nothing is done."""

    line: int
    language: str
    steps: list[Step]
    mark: str
    reason: str

    @property
    def is_compared(self) -> bool:
        return any(isinstance(step, Example | Program) and step.printed for step in self.steps)


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def guides() -> list[Path]:
    """The pages that users read, in the order in which they find them."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(page: Path, ports: Mapping[int, int]) -> Iterator[Step]:
    """What the suite does with a page."""
    for block in blocks(page, ports):
        if block.mark != "walk only":
            yield from block.steps


def blocks(page: Path, ports: Mapping[int, int]) -> list[Block]:
    """The blocks of a page, with other ports for those that it prints."""
    text = with_ports(page.read_text(), ports)
    fences = list(_FENCE.finditer(text))
    outputs = {number for number in range(1, len(fences)) if _is_output(fences, number)}
    found = []
    for number, fence in enumerate(fences):
        if number not in outputs:
            after = fences[number + 1]["body"] if number + 1 in outputs else None
            steps = [] if fence["mark"] == "not run" else _steps(fence, after, ports)
            line = text.count("\n", 0, fence.start("language")) + 1
            said = fence["mark"] or "", fence["reason"] or ""
            found.append(Block(line, fence["language"], steps, *said))
    return found


def with_ports(text: str, ports: Mapping[int, int]) -> str:
    if not ports:
        return text
    printed = "|".join(map(str, ports))
    return re.sub(rf"(?<!\d)({printed})(?!\d)", lambda port: str(ports[int(port[0])]), text)


def _is_output(fences: list[re.Match[str]], number: int) -> bool:
    """Whether a block is what the program right before it prints."""
    before, this = fences[number - 1], fences[number]
    between = this.string[before.end() : this.start()]
    return before["language"] == "python" and this["language"] == "text" and not between.strip()


def _steps(fence: re.Match[str], printed: str | None, ports: Mapping[int, int]) -> list[Step]:
    body, named = fence["body"], _NAMED.match(fence["body"])
    if fence["language"] == "console":
        return list(_commands(body))
    if named and printed is None:
        return [Saved(named[1], body)]
    if fence["language"] == "python":
        return [Program(body, None if printed is None else printed.splitlines())]
    if fence["language"] == "sql":
        return [Statements(body, with_ports(POSTGRES, ports))]
    return []


def _commands(body: str) -> Iterator[Example | Install]:
    lines = body.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command, rest = lines[start][2:], lines[start + 1 : end]
        while command.endswith("\\"):
            command, rest = f"{command}\n{rest[0].removeprefix('> ')}", rest[1:]
        yield Install(command) if command.startswith("pip ") else Example(command, rest)


def matches(wanted: list[str], printed: list[str]) -> bool:
    """Whether what was printed is what the page says."""
    return len(wanted) == len(printed) and all(
        re.fullmatch(".*".join(map(re.escape, line.rstrip().split("…"))), got.rstrip())
        for line, got in zip(wanted, printed, strict=True)
    )

"""Decision 2 names every package whose licence asks for more than its own text."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires

from packaging.requirements import Requirement

from tests.integration.docs.pages import ROOT

PERMISSIVE = re.compile(
    r"Apache[ -](?:2\.0|Software License)|MIT(?:-0| License)?"
    r"|(?:\d-Clause )?BSD(?:-\d-Clause| License)|0BSD|PSF-2\.0|Zlib|CC0-1\.0"
)


def test_what_is_not_permissive_is_named() -> None:
    page = (ROOT / "docs/decisions/0002-dependencies.md").read_text()
    section = page[page.index("## Licences") : page.index("## For development")]
    named = set(re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE))
    told = {name for cell in named for name in re.findall(r"`([\w-]+)`", cell)}
    wanted = {name for name, about in _installed() if not _is_permissive(about)}
    assert wanted == told


def _is_permissive(about: PackageMetadata) -> bool:
    classifiers = about.get_all("Classifier") or []
    classified = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License")]
    said = _field(about, "License-Expression") or " AND ".join(classified)
    said = said or _field(about, "License")
    parts = re.split(r" AND | OR |[()]", said)
    return all(PERMISSIVE.fullmatch(part) for part in parts if part) and bool(said)


def _field(about: PackageMetadata, name: str) -> str:
    return "".join(about.get_all(name) or ())


def _installed() -> Iterator[tuple[str, PackageMetadata]]:
    """Tape with all of its extras, and all that these need, as far as it is installed here."""
    seen: set[str] = set()
    left = [Requirement("tape-bus[all]")]
    while left:
        wanted = left.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        extras = [*wanted.extras, ""]
        if (key := str(wanted)) in seen:
            continue
        seen.add(key)
        try:
            yield name, metadata(name)
        except PackageNotFoundError:
            continue  # another platform's
        for line in requires(name) or ():
            needed = Requirement(line)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                left.append(needed)

"""Who may read a document one day loads nothing for it before."""

import subprocess
import sys

HEAVY = {"pydantic", "yaml", "cronsim", "cel_expr_python", "orjson"}


def loaded_by(code: str) -> set[str]:
    code = f"{code}\nimport sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(ran.stdout.split()) & HEAVY


def test_what_a_process_without_a_document_loads() -> None:
    assert loaded_by("import tape.subscriptions.spec") == set()
    reading = "from tape.subscriptions import document_reading"
    assert loaded_by(reading) >= {"pydantic", "yaml", "orjson"}, "else this shows nothing"

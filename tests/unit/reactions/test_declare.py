"""Reactions declared in code: what they become, which ids they have, what is refused."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tape
from tape.errors import InvalidArgument
from tape.model.reaction import NewReaction, Reaction
from tape.model.subject import parse_pattern
from tape.model.subjects import decision, effect, gate_released, run_status, value_changed
from tape.reactions.declare import DECLARED, Declaration, register_declared
from tape.reactions.settings import Options, new_reaction

SEED = """
import tape

# ── declare reactions at startup ──
@tape.on_value_change("treasury", key="fx_rate",
                      predicate="double(payload.value.value_json) > 1.10",
                      max_concurrency=8, debounce_ms=500)
def reprice_book(envelope):
    # ephemeral task; this Python fn runs in the dispatcher process.
    ...

@tape.on_effect_confirmed("execute_sweep",
                          agent="treasury-followup",     # ⇒ HandlerKind.AGENT
                          max_concurrency=4)
def _():  # body is unused for agent handlers; the decorator registers the reaction
    ...

@tape.on("/tape/effect/failed/**",
         publish="pubsub://my-proj/incident-stream")    # ⇒ HandlerKind.PUBLISH
def _():
    ...
"""
SHOW = """
from tape.reactions.declare import DECLARED
print(*(declaration.new.reaction_id for declaration in DECLARED), sep="\\n")
"""


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    before = list(DECLARED)
    DECLARED.clear()
    yield
    DECLARED.clear()
    for declaration in before:
        DECLARED.add(declaration)


def ids() -> list[str]:
    return [declaration.new.reaction_id for declaration in DECLARED]


def only() -> Declaration:
    (declaration,) = DECLARED
    return declaration


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Writes `desk.py` and imports it, or loads it again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(source: str) -> Any:
        (tmp_path / "desk.py").write_text(source)
        importlib.invalidate_caches()
        if "desk" in sys.modules:
            return importlib.reload(sys.modules["desk"])
        return importlib.import_module("desk")

    monkeypatch.delitem(sys.modules, "desk", raising=False)
    return load


def test_the_examples_of_the_specification(module: Callable[[str], Any]) -> None:
    desk = module(SEED)
    reprice, follow_up, incident = DECLARED
    assert reprice.new == NewReaction(
        "desk.reprice_book",
        "/tape/value/changed/treasury/fx_rate",
        2,
        predicate_cel="double(payload.value.value_json) > 1.10",
        max_concurrency=8,
        debounce_ms=500,
    )
    assert reprice.handler is desk.reprice_book
    assert callable(desk.reprice_book)
    assert follow_up.new == NewReaction(
        follow_up.new.reaction_id,
        "/tape/effect/confirmed/execute_sweep/*",
        1,
        agent_app="treasury-followup",
        max_concurrency=4,
    )
    assert incident.new == NewReaction(
        incident.new.reaction_id,
        "/tape/effect/failed/**",
        3,
        publish_target="pubsub://my-proj/incident-stream",
    )
    assert (follow_up.handler, incident.handler) == (None, None)
    assert ids() == [
        "desk.reprice_book",
        "agent:treasury-followup:5249555060c6",
        "publish:pubsub://my-proj/incident-stream:d36befaef9ca",
    ]
    assert "desk.reprice_book" in DECLARED
    assert DECLARED.get("desk.reprice_book") is reprice
    assert DECLARED.get("other") is None


@pytest.mark.parametrize(
    "arguments",
    [["desk.py"], ["-m", "desk"], ["-m", "shop"], ["-c", "import desk" + SHOW]],
    ids=["script", "module", "package", "imported"],
)
def test_ids_are_the_same_however_a_program_is_started(
    tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "desk.py").write_text(SEED + ("" if "-c" in arguments else SHOW))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/__main__.py").write_text(SEED + SHOW)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    home = "shop" if arguments[-1] == "shop" else "desk"
    assert done.stdout.splitlines() == [
        f"{home}.reprice_book",
        "agent:treasury-followup:5249555060c6",
        "publish:pubsub://my-proj/incident-stream:d36befaef9ca",
    ]


def test_a_module_loaded_again_takes_the_place_of_what_it_declared(
    module: Callable[[str], Any],
) -> None:
    source = "import tape\n@tape.on('/tape/{}/**')\ndef handle(envelope): ...\n"
    first = module(source.format("event"))
    assert (first.handle, only().handler) == (only().handler, first.handle)
    again = module("\n\n" + source.format("value"))
    assert only().new.subject_pattern == "/tape/value/**"
    assert only().handler is again.handle
    module(source.replace("handle", "renamed").format("value"))
    assert ids() == ["desk.renamed"]


def test_two_declarations_of_one_id_are_refused(module: Callable[[str], Any]) -> None:
    source = "import tape\n" + 2 * "@tape.on('/**')\ndef _(envelope): ...\n"
    with pytest.raises(InvalidArgument) as refused:
        module(source)
    assert refused.value.field == "reaction_id"
    said = str(refused.value)
    assert "'desk._' is declared by desk._ (" in said
    assert "desk.py:2)" in said
    assert "desk.py:4)" in said
    assert "reaction_id of its own" in said


def test_the_same_said_twice_is_one() -> None:
    for _ in range(2):
        tape.on("/**", agent="a")(lambda: None)
    assert len(DECLARED) == 1
    with pytest.raises(InvalidArgument, match="declared by"):
        tape.on("/**", agent="a", retry_max=1)(lambda: None)
    tape.on("/**", agent="a", predicate="true")(lambda: None)
    tape.on("/**", agent="b")(lambda: None)
    tape.on("/**", agent="a", retry_max=1, reaction_id="mine")(lambda: None)
    assert len(DECLARED) == 4


def test_at_a_prompt_saying_it_again_changes_it() -> None:
    typed = "\n".join(
        [
            "import tape",
            "@tape.on('/**')",
            "def handle(envelope): ...",
            "",
            "@tape.on('/**', retry_max=1)",
            "def handle(envelope): ...",
            "",
            "from tape.reactions.declare import DECLARED",
            "print([(d.new.reaction_id, d.new.retry_max) for d in DECLARED])",
            "",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-q", "-i"], input=typed, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[('__main__.handle', 1)]"


def test_functions_stay_what_they_are() -> None:
    def plain(envelope: dict[str, Any]) -> int:
        return int(envelope["seq"])

    async def slow(envelope: dict[str, Any]) -> None: ...

    assert tape.on("/**", reaction_id="plain")(plain) is plain
    assert tape.on("/**", reaction_id="slow")(slow) is slow
    assert plain({"seq": 3}) == 3
    seen: list[Any] = []
    tape.on("/**", reaction_id="method")(seen.append)
    assert [d.handler for d in DECLARED] == [plain, slow, seen.append]


def declared(decorate: Callable[[Any], Any]) -> NewReaction:
    DECLARED.clear()
    decorate(lambda _envelope: None)
    return only().new


@pytest.mark.parametrize(
    ("decorate", "pattern"),
    [
        (tape.on_value_change("a b"), "/tape/value/changed/a%20b/**"),
        (tape.on_value_change("n", "k/*"), "/tape/value/changed/n/k%2F%2A"),
        (tape.on_value_change("n", ""), "/tape/value/changed/n/_"),
        (tape.on_value_deleted("n", key="_"), "/tape/value/deleted/n/%5F"),
        (tape.on_value_deleted("n"), "/tape/value/deleted/n/**"),
        (tape.on_effect_confirmed("a/b"), "/tape/effect/confirmed/a%2Fb/*"),
        (tape.on_effect_failed(None), "/tape/effect/failed/*/*"),
        (tape.on_effect_unknown("**"), "/tape/effect/unknown/%2A%2A/*"),
        (tape.on_effect_reconciled("pay"), "/tape/effect/reconciled/pay/*"),
        (tape.on_decision_recorded(), "/tape/decision/recorded/*/*"),
        (tape.on_decision_recorded(decision_index=0), "/tape/decision/recorded/*/0"),
        (tape.on_decision_recorded("r/1", 2), "/tape/decision/recorded/r%2F1/2"),
        (tape.on_gate("review"), "/tape/gate/waiting/review/*"),
        (tape.on_gate("review", verb="released"), "/tape/gate/released/review/*"),
        (tape.on_run("FAILED"), "/tape/run/failed/*/**"),
        (tape.on_run("terminal", app="my app"), "/tape/run/terminal/my%20app/**"),
        (tape.on_run("done"), "/tape/run/terminal/*/**"),
    ],
)
def test_subjects_of_the_short_forms(decorate: Any, pattern: str) -> None:
    assert declared(decorate).subject_pattern == pattern


@pytest.mark.parametrize(
    ("decorate", "subject"),
    [
        (tape.on_value_change("n", "odd / key*"), value_changed("n", "odd / key*")),
        (tape.on_value_change("n"), value_changed("n", "k")),
        (tape.on_effect_confirmed("tool"), effect("confirmed", "tool", "r/1")),
        (tape.on_decision_recorded(None, 3), decision("recorded", "r", 3)),
        (tape.on_gate("g", "released"), gate_released("g", "r")),
        (tape.on_run("waiting", "app"), run_status("waiting", "app", "u", "s", "r")),
        (tape.on_run("waiting"), run_status("waiting", "app", "u", "", "r")),
    ],
)
def test_they_match_what_the_journal_says(decorate: Any, subject: str) -> None:
    assert parse_pattern(declared(decorate).subject_pattern).matches(subject)


def test_every_setting_arrives() -> None:
    options: Options = {
        "where": "true",
        "publish": "log:",
        "max_concurrency": 2,
        "rate_limit_per_s": 3,
        "debounce_ms": 4,
        "retry_max": 6,
        "retry_backoff_ms": 7,
        "dlq_after_n": 8,
        "num_shards": 9,
        "name": "n",
        "reaction_id": "i",
        "from_global_seq": 0,
        "engine": "spark",
    }
    expected = NewReaction("i", "/**", 3, "n", "true", "", "log:", 2, 3, 4, 6, 7, 8, 9, "spark", 0)
    assert declared(tape.on("/**", **options)) == expected
    assert new_reaction("/**", **options) == expected


@pytest.mark.parametrize(
    "declare",
    [
        partial(tape.on, "/**"),
        partial(tape.on_value_change, "desk"),
        partial(tape.on_value_deleted, "desk"),
        partial(tape.on_effect_confirmed, "pay"),
        partial(tape.on_effect_failed, "pay"),
        partial(tape.on_effect_unknown, "pay"),
        partial(tape.on_effect_reconciled, "pay"),
        partial(tape.on_decision_recorded, "r"),
        partial(tape.on_gate, "g"),
        partial(tape.on_run, "failed"),
    ],
    ids=lambda declare: declare.func.__name__,
)
def test_where_and_predicate_are_one_setting(declare: Any) -> None:
    new = declared(declare(where="payload.n > 1", agent="a"))
    DECLARED.clear()
    assert new.predicate_cel == "payload.n > 1"
    assert declared(declare(predicate="payload.n > 1", agent="a")) == new  # its id as well
    with pytest.raises(InvalidArgument, match="predicate: is another name for where"):
        declare(where="true", predicate="true")
    with pytest.raises(InvalidArgument, match="predicate_cel: None is not a text"):
        declared(declare(where=None))


def test_defaults_are_those_of_the_model() -> None:
    parameters = inspect.signature(tape.on).parameters
    renamed = {"predicate_cel": "where", "agent_app": "agent", "publish_target": "publish"}
    for field, default in NewReaction._field_defaults.items():
        said = parameters[renamed.get(field, field)].default
        assert (said or default) == default, field
    assert {*parameters} - {"subject_pattern"} == {*Options.__annotations__}


def test_secrets_are_in_no_id() -> None:
    for target, shown in (
        ("nats://ada:hunter2@h:1/a.b", "publish:nats://h:1/a.b:"),
        ("https://hooks.example/hunter2?token=hunter2", "publish:https://hooks.example:"),
    ):
        found = declared(tape.on("/**", publish=target))
        assert found.reaction_id.startswith(shown)
        assert "hunter2" not in found.reaction_id
        assert found.publish_target == target
    other = declared(tape.on("/**", publish="https://hooks.example/other"))
    assert other.reaction_id != found.reaction_id
    assert len(declared(tape.on("/**", agent="a" * 400)).reaction_id) < 150


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_concurrency": 0}, "max_concurrency: 0 is not in 1.."),
        ({"num_shards": 0}, "num_shards: 0 is not 1 or more"),
        ({"debounce_ms": -1}, "debounce_ms"),
        ({"retry_max": "5"}, "retry_max: '5' is not a whole number"),
        ({"rate_limit_per_s": 1.5}, "rate_limit_per_s: 1.5 is not a whole number"),
        ({"dlq_after_n": True}, "dlq_after_n: True is not a whole number"),
        ({"predicate": None}, "predicate_cel: None is not a text"),
        ({"from_global_seq": -1}, "from_global_seq"),
        ({"engine": "fast"}, "'fast' is not one of server, spark"),
        ({"agent": "a", "publish": "log:"}, "agent: excludes publish"),
        ({"agent": ""}, "agent_app: is required"),
        ({"publish": ""}, "publish_target: is required"),
        ({"pool": "gpu"}, "pool: goes only with the handler kind agent"),
        ({"agent": 7}, "agent_app: 7 is not a text"),
        ({"reaction_id": "\0"}, "reaction_id"),
    ],
)
def test_bad_settings(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        tape.on("/**", **options)(lambda _envelope: None)
    assert said in str(refused.value)
    assert len(DECLARED) == 0


@pytest.mark.parametrize("pattern", ["", "tape", "/tape/**/x", "/tape/Event/**", None, 3])
def test_bad_patterns(pattern: Any) -> None:
    with pytest.raises(InvalidArgument, match="subject_pattern"):
        tape.on(pattern)(lambda _envelope: None)


def _generator(_envelope: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (lambda: None, "too many positional arguments"),
        (lambda _a, _b: None, "missing a required argument: '_b'"),
        (lambda _a, *, b: None, "missing a required"),
        (_generator, "is a generator"),
        (3, "3 is not a function"),
        (partial(print), "handler that has no name"),
    ],
)
def test_handlers_that_could_not_be_called(handler: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        tape.on("/**")(handler)
    assert said in str(refused.value)
    assert len(DECLARED) == 0


def test_the_parentheses_forgotten() -> None:
    def handle(envelope: Any) -> None: ...

    with pytest.raises(InvalidArgument, match=r"write @tape.on\('/tape/…'\)"):
        tape.on(handle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "arguments", "said"),
    [
        (tape.on_run, ["ended"], "status: 'ended' is not one of runnable"),
        (tape.on_run, [None], "status"),
        (tape.on_run, ["failed", 3], "app: 3 is not a text"),
        (tape.on_value_change, [3], "namespace: 3 is not a text"),
        (tape.on_decision_recorded, [None, "0"], "decision_index"),
    ],
)
def test_bad_short_forms(make: Any, arguments: list[Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make(*arguments)
    assert said in str(refused.value)


def test_a_verb_is_a_word() -> None:
    with pytest.raises(InvalidArgument, match="verb"):
        tape.on_gate("g", verb="*")(lambda _envelope: None)


class Journal:
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def register_reaction(self, new: NewReaction, /) -> Reaction:
        if new.predicate_cel == "1 +":
            raise InvalidArgument("ends too early", field="predicate_cel", position=3)
        self.seen.append(new.reaction_id)
        settings = new._asdict()
        del settings["from_global_seq"]
        return Reaction(**settings, created_at_ms=1, deleted=0)


async def test_registering_names_whoever_is_refused() -> None:
    journal = Journal()
    for number in range(2):
        tape.on("/**", reaction_id=f"r{number}")(lambda _envelope: None)
    made = await register_declared(journal)
    assert [reaction.reaction_id for reaction in made] == journal.seen == ["r0", "r1"]
    tape.on("/**", reaction_id="bad", predicate="1 +")(_plain)
    with pytest.raises(InvalidArgument, match=r"_plain .*predicate_cel at position 3"):
        await register_declared(journal)


def _plain(_envelope: Any) -> None: ...

"""Patterns and the trie of them, against a matcher too simple to be wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.model.subject import Pattern, parse_pattern
from tape.model.subject_trie import SubjectTrie

WORDS = st.sampled_from(["a", "b", "ab"])
DIMENSIONS = st.sampled_from(["a", "b", "ab", "_", "%2A", "%2A%2A", "A", "a.b", "a-b"])


@st.composite
def subjects(draw: st.DrawFn) -> str:
    segments = [draw(WORDS), draw(WORDS), *draw(st.lists(DIMENSIONS, max_size=3))]
    return "/tape/" + "/".join(segments)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    star = st.just("*")
    segments = [draw(WORDS | star), draw(WORDS | star)][: draw(st.integers(0, 2))]
    if len(segments) == 2:
        segments += draw(st.lists(DIMENSIONS | star, max_size=3))
    if draw(st.booleans()) or not segments:
        segments.append("**")
    return draw(st.sampled_from(["/tape/" + "/".join(segments)] * 9 + ["/**"]))


def naive(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("/")[1:], subject.split("/")[1:]
    if wanted[-1] == "**":
        wanted.pop()
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        w in ("*", g) for w, g in zip(wanted, given, strict=True)
    )


@given(patterns(), subjects())
def test_a_pattern_matches_as_the_naive_matcher_does(pattern: str, subject: str) -> None:
    assert parse_pattern(pattern).matches(subject) == naive(pattern, subject)


@given(subjects())
def test_a_subject_as_a_pattern_matches_itself_alone(subject: str) -> None:
    pattern = parse_pattern(subject)
    assert pattern.matches(subject)
    assert not pattern.matches(subject + "/a")
    assert not pattern.matches(subject + "a")


@given(patterns(), subjects())
def test_what_a_pattern_matches_has_its_prefix(pattern: str, subject: str) -> None:
    parsed = parse_pattern(pattern)
    if parsed.matches(subject):
        assert subject.startswith(parsed.prefix)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("/tape/value/changed/treasury/**", "/tape/value/changed/treasury/x/y", True),
        ("/tape/value/changed/treasury/**", "/tape/value/changed/treasury", True),
        ("/tape/value/changed/treasury/**", "/tape/value/changed/treasury2/x", False),
        ("/tape/effect/confirmed/execute_sweep/*", "/tape/effect/confirmed/execute_sweep/r", True),
        ("/tape/effect/confirmed/execute_sweep/*", "/tape/effect/confirmed/execute_sweep", False),
        ("/tape/effect/confirmed/execute_sweep/*", "/tape/effect/confirmed/other/r", False),
        ("/tape/effect/**", "/tape/effect/unknown/t/r", True),
        ("/tape/effect/**", "/tape/effects/unknown/t/r", False),
        ("/tape/decision/recorded/*/0", "/tape/decision/recorded/r1/0", True),
        ("/tape/decision/recorded/*/0", "/tape/decision/recorded/r1/10", False),
        ("/tape/*/*/**", "/tape/run/running/a/u/s/r", True),
        ("/**", "/tape/run/running/a/u/s/r", True),
        ("/tape/event/recorded/a.b/**", "/tape/event/recorded/axb/_/_", False),
    ],
)
def test_patterns_by_example(pattern: str, subject: str, expected: bool) -> None:
    assert parse_pattern(pattern).matches(subject) is expected


@pytest.mark.parametrize(
    ("text", "prefix", "exact", "everything"),
    [
        ("/**", "", False, True),
        ("/tape/**", "/tape", False, False),
        ("/tape/a/*/b", "/tape/a/", False, False),
        ("/tape/a/b/**", "/tape/a/b", False, False),
        ("/tape/a/b/c", "/tape/a/b/c", True, False),
        ("/tape/*/b", "/tape/", False, False),
    ],
)
def test_what_is_known_of_a_pattern(text: str, prefix: str, exact: bool, everything: bool) -> None:
    pattern = parse_pattern(text)
    assert (pattern.prefix, pattern.exact, pattern.everything) == (prefix, exact, everything)


@given(st.lists(patterns(), max_size=12), st.data(), subjects())
def test_a_trie_matches_as_a_loop_over_its_patterns(
    texts: list[str], data: st.DataObject, subject: str
) -> None:
    trie: SubjectTrie[int] = SubjectTrie()
    held: list[tuple[Pattern, int]] = []
    for item, text in enumerate(texts):
        held.append((parse_pattern(text), item))
        trie.add(*held[-1])
        if data.draw(st.booleans()):
            trie.remove(*held.pop(data.draw(st.integers(0, len(held) - 1))))
    assert sorted(trie.match(subject)) == [item for p, item in held if p.matches(subject)]
    for pattern, item in held:
        trie.remove(pattern, item)
    assert trie.match(subject) == []
    assert trie._root.barren


def test_a_pattern_added_twice_matches_twice() -> None:
    trie: SubjectTrie[str] = SubjectTrie()
    pattern = parse_pattern("/tape/a/*")
    trie.add(pattern, "x")
    trie.add(pattern, "x")
    assert trie.match("/tape/a/b") == ["x", "x"]
    trie.remove(pattern, "x")
    assert trie.match("/tape/a/b") == ["x"]


@pytest.mark.parametrize("text", ["/tape/a/b", "/tape/a/*", "/tape/a/**", "/tape/c/d", "/**"])
def test_what_was_never_added_cannot_be_removed(text: str) -> None:
    trie: SubjectTrie[str] = SubjectTrie()
    trie.add(parse_pattern("/tape/a/b/c"), "x")
    with pytest.raises(ValueError, match=r"never added|not in list"):
        trie.remove(parse_pattern(text), "x")
    assert trie.match("/tape/a/b/c") == ["x"]

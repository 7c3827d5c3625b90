"""Tokens, roles, and what may be exposed."""

import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from tape.api.auth import Tokens, check_exposure
from tape.calls.role import Role
from tape.errors import InvalidArgument, PermissionDenied, Unauthenticated, Unsafe

SECRET = "s3cr3t-of-the-test"


@pytest.mark.parametrize("held", Role)
@pytest.mark.parametrize("needed", Role)
def test_roles_are_ordered(held: Role, needed: Role) -> None:
    tokens = Tokens([(held, SECRET)])
    if held >= needed:
        tokens.check(f"Bearer {SECRET}", needed)
    else:
        with pytest.raises(PermissionDenied, match=needed.name.lower()) as refused:
            tokens.check(f"Bearer {SECRET}", needed)
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "header", ["", SECRET, f"Basic {SECRET}", "Bearer", "Bearer ", "Bearer wrong", "Bearer \udc80"]
)
def test_anything_else_is_turned_away(header: str) -> None:
    with pytest.raises(Unauthenticated):
        Tokens([(Role.ADMIN, SECRET)]).check(header, Role.READ)


def test_the_scheme_is_case_insensitive() -> None:
    Tokens([(Role.READ, SECRET)]).check(f"bearer {SECRET}", Role.READ)


def test_no_tokens_let_everyone_in() -> None:
    Tokens().check("", Role.ADMIN)


def test_a_token_given_twice_has_its_highest_role() -> None:
    tokens = Tokens.parse(f"read:{SECRET}, admin:{SECRET},")
    tokens.check(f"Bearer {SECRET}", Role.ADMIN)


def test_from_text_and_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# who may what\n\nread one\nWRITE   {SECRET}\n")
    for tokens in (Tokens.read(path), Tokens.parse(f"read:one,write:{SECRET}")):
        tokens.check("Bearer one", Role.READ)
        tokens.check(f"Bearer {SECRET}", Role.WRITE)
        with pytest.raises(PermissionDenied):
            tokens.check("Bearer one", Role.WRITE)


@pytest.mark.parametrize(
    "text", [SECRET, f"boss:{SECRET}", "read:", f"read:{SECRET} x", f"read:{SECRET}ü"]
)
def test_bad_settings_say_where_and_not_what(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"tokens\[1\]") as refused:
        Tokens.parse(f"read:fine,{text}")
    assert SECRET not in str(refused.value)


def test_tokens_are_not_kept() -> None:
    assert SECRET not in repr(vars(Tokens([(Role.READ, SECRET)])))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="missing"):
        Tokens.read(tmp_path / "missing")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_exposure(host, tokens=False, tls=False, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "", "192.0.2.1", "nowhere.invalid"])
@pytest.mark.parametrize(
    ("tokens", "tls", "insecure", "safe"),
    [
        (False, False, False, False),
        (False, True, False, False),
        (False, True, True, False),
        (True, False, False, False),
        (True, True, False, True),
        (True, False, True, True),
    ],
)
def test_elsewhere_needs_tokens_and_tls(
    host: str, *, tokens: bool, tls: bool, insecure: bool, safe: bool
) -> None:
    with nullcontext() if safe else pytest.raises(Unsafe):
        check_exposure(host, tokens=tokens, tls=tls, insecure=insecure)


def test_a_name_that_also_stands_for_another_machine_is_not_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(0, 0, 0, "", ("127.0.0.1", 0)), (0, 0, 0, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    with pytest.raises(Unsafe):
        check_exposure("mixed", tokens=False, tls=False, insecure=False)


def test_tokens_that_are_asked_for_and_missing_are_refused(tmp_path: Path) -> None:
    """Nobody who asks for tokens means that everybody may do everything."""
    for text in ("", " ", ",", " , "):
        with pytest.raises(InvalidArgument, match="tokens are required but the text is empty"):
            Tokens.parse(text)
    path = tmp_path / "tokens"
    for text in ("", "\n\n", "# read secret\n"):
        path.write_text(text)
        with pytest.raises(InvalidArgument, match="tokens are required but the file has none"):
            Tokens.read(path)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_of_tokens_that_others_can_read(
    tmp_path: Path, mode: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"read {SECRET}\n")
    path.chmod(mode)
    Tokens.read(path)
    said = [record.getMessage() for record in caplog.records]
    assert bool(said) == warned
    assert all("chmod 600" in line and SECRET not in line for line in said)

"""Signatures: the specification's own example, and what a secret may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tape.errors import InvalidArgument
from tape.model.signature import secret_key, signature


def test_the_example_of_the_specification() -> None:
    key = secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    assert (
        signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_a_secret_is_base64_after_its_prefix_and_else_itself() -> None:
    assert secret_key("whsec_" + "QUJD" * 8) == b"ABC" * 8
    assert secret_key("x" * 24) == b"x" * 24


@pytest.mark.parametrize("secret", ["", "short", "whsec_!!!", "whsec_c2hvcnQ=", "x" * 65])
def test_a_bad_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        secret_key(secret)
    assert refusal.value.field == "secret"
    assert secret == "" or secret not in str(refusal.value)


@given(st.binary(min_size=24, max_size=64), st.binary(), st.text(max_size=9))
def test_another_key_body_or_id_is_another_signature(key: bytes, body: bytes, name: str) -> None:
    signed = signature(key, name, "1", body)
    assert signed == signature(key, name, "1", body)
    assert signed != signature(key, name, "1", body + b"\0")
    assert signed != signature(key, name, "2", body)
    assert signed != signature(key, name + "a", "1", body)
    assert signed != signature(key + b"\1", name, "1", body)

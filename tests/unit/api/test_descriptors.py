import logging

import pytest

from tape.api import descriptors
from tape.api.descriptors import RESERVE, SERVED, fit_to_descriptors
from tape.settings import DoorSettings

FILES = 512


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (SERVED, "gRPC and HTTP accept 128 connections each instead of 2000"),
        ((*SERVED, "health"), "gRPC and HTTP and health accept 85 connections each"),
        (("health",), "health accept 256 connections each"),
    ],
)
def test_the_doors_that_are_open_never_take_every_file(
    names: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(descriptors, "_raised_to", lambda wanted: min(wanted, FILES))
    fitted = fit_to_descriptors(DoorSettings(), names)
    assert fitted.connections * len(names) + RESERVE <= FILES
    assert told in caplog.text
    caplog.clear()
    caplog.set_level(logging.WARNING)
    assert fit_to_descriptors(fitted, names) == fitted
    assert caplog.text == ""

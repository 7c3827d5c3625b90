"""What is told of a subscription of Pub/Sub that is good enough to be pulled."""

from datetime import timedelta

import pytest
from google.pubsub_v1 import Subscription

from tape.sources.pubsub import KEPT_MOST, warnings_of
from tape.subscriptions.upkeep import PLACE_AGES

DAY = timedelta(days=1)


def test_messages_are_remembered_for_longer_than_they_are_kept() -> None:
    assert timedelta(milliseconds=PLACE_AGES.pubsub_ms) == KEPT_MOST + DAY


@pytest.mark.parametrize("kept", [timedelta(), timedelta(minutes=10), KEPT_MOST])
def test_of_the_usual_retention_nothing_is_told(kept: timedelta) -> None:
    assert warnings_of(Subscription(message_retention_duration=kept)) == []


@pytest.mark.parametrize(("kept", "said"), [(7.5 * DAY, "for 7.5 days"), (31 * DAY, "for 31 days")])
def test_messages_that_are_kept_longer_are_told_of(kept: timedelta, said: str) -> None:
    (warning,) = warnings_of(Subscription(message_retention_duration=kept))
    assert said in warning
    assert "set message_retention_duration to 7 days" in warning

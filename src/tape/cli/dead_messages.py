"""Dead letters of subscriptions: what `tape dlq … --subscription NAME` does."""

from base64 import b64decode
from collections.abc import Iterable, Sequence

from tape.cli.error_text import quiet_on_broken_pipe
from tape.cli.output import abridged, date_time, print_json, print_table, say
from tape.cli.target import Target, ask
from tape.errors import NotFound
from tape.model.message import body_text
from tape.model.subscription import SubscriptionDeadLetter
from tape.subscriptions.shown import letter_headers, letter_json


def list_messages(target: Target, name: str, limit: int, *, as_json: bool) -> None:
    found = ask(target, lambda client: client.subscription_dead_letters(name, limit=limit))
    with quiet_on_broken_pipe():
        if as_json:
            for letter in found:
                print_json(letter_json(letter))
            return
        _print_table(found)


def show_message(target: Target, name: str, letter_id: str, *, as_json: bool) -> None:
    letter = ask(target, lambda client: client.subscription_dead_letter(name, letter_id))
    if letter is None:
        raise NotFound(f"no dead letter {letter_id} of subscription {name}")
    if as_json:
        print_json(letter_json(letter))
        return
    body = b64decode(letter.body)
    text, encoding = body_text(body)
    said = {
        "dead letter": letter.letter_id,
        "place": letter.place,
        "message": letter.message_id,
        "reason": f"{letter.reason}: {letter.detail}",
        "attempts": str(letter.attempts),
        "since": date_time(letter.at_ms),
        "key": letter.key,
        "subject": letter.source_subject,
    }
    for field, told in said.items():
        if told:
            say(f"{field:11}  {told}")
    for spelled, value in letter_headers(letter):
        say(f"{'header':11}  {spelled}: {value.decode(errors='replace')}")
    say(f"{'body':11}  {len(body)} bytes{', in base64' if encoding else ''}")
    if text:
        say(text)


def replay_messages(target: Target, name: str, ids: Sequence[str]) -> int:
    return ask(target, lambda client: client.replay_subscription_dead_letters(name, ids))


def drop_messages(target: Target, name: str, ids: Sequence[str]) -> int:
    return ask(target, lambda client: client.drop_subscription_dead_letters(name, ids))


def _print_table(found: Iterable[SubscriptionDeadLetter]) -> None:
    rows = [
        (letter.letter_id, letter.reason, str(letter.attempts), date_time(letter.at_ms),
         letter.message_id, abridged(letter.detail, 60))
        for letter in found
    ]  # fmt: skip
    columns = "ID", "REASON", "ATTEMPTS", "SINCE", "MESSAGE", "DETAIL"
    print_table(columns, rows, whole=("ID",))

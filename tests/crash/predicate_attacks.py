"""Predicates that once stopped a server, and the entries they were asked about.

`fill` records the entries. Each of `ATTACKS` is asked as a search (`path`), as a follower, or as a
reaction, by whoever tries how a server bears it.
"""

from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx

SMALL: Final = 5_000
LARGE: Final = 12
AT_ONCE: Final = 1_000
NUMBERS: Final = f"[{','.join(map(str, range(17)))}]"


class Attack(NamedTuple):
    """`event_type` is of the entries that the predicate is meant for."""

    name: str
    event_type: str
    where: str

    @property
    def path(self) -> str:
        """A search for one entry, of which there is none."""
        return f"/api/events/recent?limit=1&event_type={self.event_type}&where={quote(self.where)}"

    @property
    def pattern(self) -> str:
        return f"/tape/event/recorded/{self.event_type}/**"


ATTACKS: Final = (
    Attack(
        "macros within macros",
        "ord.inary",
        f"{NUMBERS}.exists(a,{NUMBERS}.exists(b,{NUMBERS}.exists(c,{NUMBERS}.exists(d,a+b+c+d<0))))",
    ),
    Attack("a large regular expression", "large.text", "payload.s.matches('a[ab]{900}c')"),
    Attack(
        "lists compared", "large.list", " && ".join(["payload.l == payload.l"] * 150) + " && false"
    ),
    Attack("lists looked through", "large.list", " || ".join(["-1 in payload.l"] * 200)),
    Attack("much to parse", "large.list", "payload.n == 1"),
    Attack(
        "as much as one evaluation may",
        "ord.inary",
        f"{NUMBERS}.exists(a,{NUMBERS}.exists(b,[1,2,3,4].exists(c,a+b+c<0)))",
    ),
)


def fill(http: str, small: int = SMALL, large: int = LARGE) -> None:
    """Record what the attacks are about, at a door `HOST:PORT`."""
    events: list[dict[str, Any]] = [
        {
            "event_type": "ord.inary",
            "entity_type": "thing",
            "entity_id": str(n),
            "payload": {"n": n},
        }
        for n in range(small)
    ]
    texts: dict[str, Any] = {"event_type": "large.text", "payload": {"s": "ab" * 500_000}}
    lists: dict[str, Any] = {"event_type": "large.list", "payload": {"l": [1] * 200_000}}
    with httpx.Client(base_url=f"http://{http}", timeout=60) as client:
        for start in range(0, small, AT_ONCE):
            some = events[start : start + AT_ONCE]
            client.post("/api/events/record", json={"events": some}).raise_for_status()
        for event in [texts, lists] * large:
            client.post("/api/events/record", json=event).raise_for_status()

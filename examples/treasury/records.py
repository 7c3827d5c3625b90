"""What the counterparties keep and answer: plain JSON, so that a run can write it down as it is."""

from typing import Generic, Literal, TypedDict, TypeVar

T = TypeVar("T")

Route = Literal[
    "bank.wire",
    "bank.plain_wire",
    "bank.reverse",
    "broker.order",
    "broker.cancel",
    "ledger.batch",
]
Do = Literal["lose_ack", "fail", "refuse", "crash", "twice"]
Outcome = Literal["did", "repeated", "refused", "failed"]
Side = Literal["buy", "sell"]

# Written as a call because `from` cannot be the name of a field.
Wire = TypedDict(
    "Wire",
    {
        "id": str,
        "key": str | None,
        "reference": str | None,
        "from": str,
        "to": str,
        "cents": int,
        "reversed": bool,
    },
)


class Quote(TypedDict):
    """A price in decimal digits: a float would lose what a ledger counts."""

    pair: str
    price: str


class Order(TypedDict):
    id: str
    key: str
    pair: str
    side: Side
    cents: int
    price: str
    cancelled: bool


class Line(TypedDict):
    """Cents above zero are a debit, below zero a credit."""

    account: str
    cents: int


class Batch(TypedDict):
    id: str
    key: str
    lines: list[Line]


class Status(TypedDict, Generic[T]):
    """What became of a key: nothing, one record, or more records than there should be."""

    status: Literal["absent", "done", "twice"]
    found: list[T]


class Hook(TypedDict):
    """What the next `times` requests to a route will meet."""

    route: Route
    do: Do
    times: int


class Call(TypedDict):
    """A request to act, as it was met. `key` is its key, its reference, or the id it acts on."""

    route: Route
    key: str
    outcome: Outcome
    hook: Do | None


class Books(TypedDict):
    wires: list[Wire]
    orders: list[Order]
    batches: list[Batch]


def status(found: list[T]) -> Status[T]:
    match found:
        case []:
            return {"status": "absent", "found": found}
        case [_]:
            return {"status": "done", "found": found}
        case _:
            return {"status": "twice", "found": found}

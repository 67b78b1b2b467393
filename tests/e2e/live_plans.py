"""What a random schedule of two processes is about: files, exports, launches, and who is killed where."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support.live_shop import event

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-06")
HISTORY, SEALED, LIVE = DAYS[:3], DAYS[3:5], DAYS[5]
"""Before the first fence; sealed on the way; never sealed. It is noon of the last day."""

Seen = tuple[int, int]
"""Which version of which order a row is."""


@dataclass(frozen=True)
class Plan:
    """Everything that a schedule is about.

    Args:
        files: Lines of each file that lands.
        wrong_lines: How many of them are no event.
        events: By day, every order that lands, each as often as it does.
        exports: By day, how its export changes, in order.
        write: Of the live side: `land` a file, or `write` what has landed.
        launch: Of the history side.
        together: Whether both sides act at the same time.
        kills: By side, at which point it is killed, and after how many seconds.
    """

    files: list[list[str]]
    wrong_lines: int
    events: dict[str, list[Seen]]
    exports: dict[str, list[list[Seen]]]
    write: list[str]
    launch: list[dict[str, Any]]
    last: dict[str, Any]
    together: bool
    kills: dict[str, dict[int, float]]

    def expected(self, day: str) -> Counter[Seen]:
        """Return what a day holds in the end."""
        if day == LIVE:
            return Counter(self.events[day])
        newest: dict[int, int] = {}
        for order_id, version in [*self.exports[day][-1], *self.events[day]]:
            newest[order_id] = max(version, newest.get(order_id, 0))
        return Counter(newest.items())


def line_of(day: str, order: Seen) -> dict[str, Any]:
    """One version of an order: its amount is the version, and a later one was changed later."""
    order_id, version = order
    at = datetime.fromisoformat(day) + timedelta(minutes=order_id % 600)
    return event(
        order_id, at.isoformat(), amount=f"{version}.00", updated_at=(at + timedelta(days=version)).isoformat()
    )


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    dice = random.Random(seed)
    events: dict[str, list[Seen]] = {}
    exports: dict[str, list[list[Seen]]] = {}
    for number, day in enumerate(DAYS):
        orders = [(1000 * number + n, 1) for n in range(dice.randint(3, 12))]
        if day in HISTORY:
            changed = [(order, dice.randint(1, 4)) for order, _ in orders if dice.random() < 0.4]
            unknown = [(1000 * number + 500 + n, 1) for n in range(dice.randint(0, 3))]
            again = [order for order in changed + unknown if dice.random() < 0.3]
            events[day] = changed + unknown + again
            corrected = [(order, 2 if dice.random() < 0.3 else 1) for order, _ in orders]
            exports[day] = [orders, *([corrected] if dice.random() < 0.4 else [])]
        else:
            events[day] = orders
            if day in SEALED:
                whole = [(order, dice.randint(1, 2)) for order, _ in orders] + [(1000 * number + 700, 1)]
                exports[day] = [*([orders[: len(orders) // 2]] if dice.random() < 0.5 else []), whole]
    lines = [json.dumps(line_of(day, order)) for day, orders in events.items() for order in orders]
    wrong = [f"{{broken {n}" for n in range(dice.randint(1, 3))]
    wrong += [json.dumps(event(9_000 + n, "2024-01-06T18:00:00")) for n in range(dice.randint(0, 2))]
    lines += wrong
    dice.shuffle(lines)
    files: list[list[str]] = [[] for _ in range(dice.randint(3, 6))]
    for line in lines:
        dice.choice(files).append(line)
    write = [
        step for n in range(len(files)) for step in ("land", *(["write"] if n == 0 or dice.random() < 0.4 else []))
    ]

    def launch(first: str, last: str) -> dict[str, Any]:
        return {
            "do": "launch",
            "first": first,
            "last": last,
            "only": dice.choice(("all", "missing")),
            "chunk": dice.choice((2, 3, 5)),
        }

    steps: list[dict[str, Any]] = []
    for day, changes in exports.items():
        steps += [{"do": "export", "day": day, "number": n} for n in range(len(changes) - (day in SEALED))]
    early = len(steps)
    steps.append(launch(HISTORY[0], HISTORY[-1]))
    steps += [launch(DAYS[dice.randrange(2)], DAYS[dice.randint(2, 4)]) for _ in range(dice.randint(0, 1))]
    moves = [{"do": "move", "at": f"{SEALED[1]}T00:00:00+00:00"}, {"do": "move", "at": f"{LIVE}T00:00:00+00:00"}]
    for move in moves[dice.randint(0, 1) :]:
        steps.insert(dice.randint(early, len(steps)), move)
    kills = {
        "live": {dice.randint(1, 14): dice.choice((0, 0, dice.uniform(0.01, 0.4)))},
        "history": {dice.randint(1, 12): dice.choice((0, 0, dice.uniform(0.01, 0.4)))},
    }
    if dice.random() < 0.6:
        del kills[dice.choice(("live", "history"))]
    return Plan(
        files, len(wrong), events, exports, write, steps, launch(HISTORY[0], SEALED[-1]), dice.random() < 0.7, kills
    )

"""The JSON Schemas in docs/ from the types of the answers: `python -m tools.answer_schemas` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from kubestow.commands.answers import QueueAnswer, StatusAnswer
from scheduler.explain.groups.answer import GroupExplanation
from simulator.replay.answer import ReplayAnswer
from simulator.simulate.answer import Answer, NodesNeededAnswer, OrdersAnswer

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_DOCS: Final = Path(__file__).parents[1] / "docs"
ANSWERS: Final[dict[str, tuple[str, type[msgspec.Struct]]]] = {
    "explain-group.schema.json": ("kubestow explain group -o json", GroupExplanation),
    "queue.schema.json": ("kubestow queue -o json", QueueAnswer),
    "replay.schema.json": ("kubestow replay -o json", ReplayAnswer),
    "simulate.schema.json": ("kubestow simulate -o json", Answer),
    "simulate-nodes-needed.schema.json": ("kubestow simulate --nodes-needed NODE -o json", NodesNeededAnswer),
    "simulate-seeds.schema.json": ("kubestow simulate --seeds N -o json", OrdersAnswer),
    "status.schema.json": ("kubestow status -o json", StatusAnswer),
}
"""File → the command that prints the answer, and the type of it."""


def schema(file: str) -> dict[str, Any]:
    """Return the schema in this file."""
    title, answer = ANSWERS[file]
    return {"$schema": _DRAFT, "title": title, **msgspec.json.schema(answer)}


def page(file: str) -> str:
    """Return the whole file."""
    return msgspec.json.format(msgspec.json.encode(schema(file)), indent=2).decode() + "\n"


if __name__ == "__main__":
    for name in ANSWERS:
        (_DOCS / name).write_text(page(name))

"""`docs/simulate.schema.json` from the types of the answer: `python -m tools.simulate_schema > docs/simulate.schema.json`."""

from __future__ import annotations

import sys

import msgspec

from simulator.simulate.answer import schema


def page() -> str:
    """Return the whole file."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

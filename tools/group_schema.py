"""`docs/explain-group.schema.json` from the types of the answer: `python -m tools.group_schema > docs/explain-group.schema.json`."""

from __future__ import annotations

import sys

import msgspec

from scheduler.explain.groups.answer import schema


def page() -> str:
    """Return the whole file."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

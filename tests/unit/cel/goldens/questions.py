"""The expressions that the real compiler evaluates. questions.json has them by theme.

`$A` and `$C` stand for `A` and `C`, the attributes and the capacities of the driver's own domain. `RESULTS` has values that
are no bool, and operations on values of the wrong type.
"""

from __future__ import annotations

import json
from pathlib import Path

A = 'device.attributes["dra.example.com"]'
C = 'device.capacity["dra.example.com"]'
_THEMES = json.loads((Path(__file__).parent / "questions.json").read_text())


def _own(*expressions: str) -> tuple[str, ...]:
    return tuple(each.replace("$A", A).replace("$C", C) for each in expressions)


BY_THEME = {theme: _own(*expressions) for theme, expressions in _THEMES.items()}

BROKEN = ("true", "device.driver == 'x'", "1 / 0 == 1")
"""For the devices that cannot be converted."""

LONG = _own(
    " && ".join(f"$A.model != 'm{number}'" for number in range(150)),
    " || ".join(f"device.driver == 'd{number}'" for number in range(300)),
    "(" * 60 + "true" + ")" * 60,
    "!" * 61 + "false",
    "[" * 60 + "1" + "]" * 60 + ".size() == 1",
    "".join(f"[1].all(x{number}, " for number in range(60)) + "true" + ")" * 60,
    " + ".join(["1"] * 200) + " == 200",
    " + ".join(["1"] * 400) + " == 400",
    "".join(f"[1].all(x{number}, " for number in range(300)) + "true" + ")" * 300,
)

"""How many examples a law is tried on."""

import os
from typing import Final

SLOW_SHARE: Final = 0.3
"""The share of a law that takes more than a second of CPU with all its examples."""
_FACTOR: Final = float(os.environ.get("KUBESTOW_EXAMPLES") or 0)


def examples(many: int = 100, *, share: float = 1.0) -> int:
    """Return `many`, or a `share` of it for a slow law.

    With `KUBESTOW_EXAMPLES=10` each law has ten times as many, whatever its share. Each run draws different examples.
    """
    return max(10, round(many * (_FACTOR or share)))

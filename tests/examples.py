"""How many examples a law is tried on."""

import os
from typing import Final

_EACH_RUN: Final = 0.3
_SHARE: Final = float(os.environ.get("KUBESTOW_EXAMPLES") or _EACH_RUN)


def examples(many: int = 100) -> int:
    """As many as a law deserves, if `KUBESTOW_EXAMPLES=1`, ten times that if it is 10; a part, if nobody says so.

    They are others in each run, so what one run leaves out another one tries.
    """
    return max(10, round(many * _SHARE))

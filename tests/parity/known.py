"""Asked pods on which we are known to differ from kube-scheduler v1.36.3, each with the reason.

A line here is a debt or a decision: `test_parity` fails when it has become untrue.
"""

from typing import Final

KNOWN: Final[dict[tuple[str, str], str]] = {
    (
        "DefaultPreemption/two pods that hold one port, and one of them may not leave",
        "the port counts once",
    ): "upstream takes a port for free once one of its two holders has left, and evicts a pod in vain; we count holders",
    (
        "DefaultPreemption/spread takes pods that are leaving off twice",
        "so it seems to fit",
    ): "upstream spreads without pods that are leaving, and yet takes them off when it removes victims; we do not",
}
"""(scenario, asked pod) → why. Empty is how it should be."""


def surprises(place: tuple[str, str], found: list[str]) -> list[str]:
    """What is wrong at an asked pod: differences that are not known, or a known one that is gone."""
    why = KNOWN.get(place)
    if why is None:
        return found
    return [] if found else [f"no longer a difference, take it out of known.py: {why}"]

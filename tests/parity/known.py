"""Asked pods on which we are known to differ from kube-scheduler v1.36.3, each with the reason.

A line here is a debt or a decision: `test_parity` fails when it has become untrue.
"""

from typing import Final

_FOREIGN: Final = "NodeVolumeLimits/Q-13: a pod that is there names an ephemeral claim that is not its own"
KNOWN: Final[dict[tuple[str, str], str]] = {
    (
        "DefaultPreemption/two pods that hold one port, and one of them may not leave",
        "the port counts once",
    ): "upstream takes a port for free once one of its two holders has left, and evicts a pod in vain; we count holders",
    (
        "DefaultPreemption/spread takes pods that are leaving off twice",
        "so it seems to fit",
    ): "upstream spreads without pods that are leaving, and yet takes them off when it removes victims; we do not",
    **dict.fromkeys(
        (
            ("VolumeBinding/F23: one claim in two volumes", "to be provisioned"),
            ("VolumeBinding/F23: one claim in two volumes", "to be bound"),
            ("VolumeBinding/F23: one claim in two volumes, and one PV", "p"),
        ),
        "upstream takes a claim that a pod names twice for two claims; we do not (docs/spec/volumes.md §12.2 B-16)",
    ),
    **dict.fromkeys(
        ((_FOREIGN, "p"), (_FOREIGN, "too many")),
        "upstream cannot place a pod where another names a claim that is not its own; we do not count it (§12.4 Q-13)",
    ),
    (
        "VolumePreemption/the user of a claim of the same name in another namespace leaves in vain",
        "p",
    ): "upstream evicts the user of a namesake; we compare namespaces (§12.4 B-13)",
    (
        "VolumePreemption/who is nominated holds a place to attach",
        "r",
    ): "a claim that only somebody nominated shares costs a place with us: claims in nobody's use are alike to preemption",
    **dict.fromkeys(
        (
            ("VolumePreemption/two users of a claim for one pod", "p"),
            ("VolumePreemption/two users of a claim for one pod on one node", "p"),
            ("VolumePreemption/two users of a claim for one pod on one node", "q"),
        ),
        "upstream takes a claim for free once one of its users has left, and evicts a pod in vain; we count users",
    ),
    (
        "VolumeRestrictions/an ephemeral claim of a pod that is there",
        "p",
    ): "upstream does not see that a pod uses its ephemeral claim; we do",
}
"""(scenario, asked pod) → why. Empty is how it should be."""


def surprises(place: tuple[str, str], found: list[str]) -> list[str]:
    """What is wrong at an asked pod: differences that are not known, or a known one that is gone."""
    why = KNOWN.get(place)
    if why is None:
        return found
    return [] if found else [f"no longer a difference, take it out of known.py: {why}"]

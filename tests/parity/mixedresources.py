"""What the pods of `mixed` request: containers in a row and side by side, pods as a whole, overhead, and resizes under way."""

from typing import Final

from tests.parity.generate import Dice
from tests.parity.words import Json

_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_SMALL_CPU: Final = ("0", "1m", "100m", "250m", "0.3")
_LARGE_CPU: Final = ("500m", "500m", "1", "1000500u", "1500m", "2")
_SMALL_MEMORY: Final = ("0", "1", "64Mi", "200Mi", "100M", "500000000m")
_LARGE_MEMORY: Final = ("500Mi", "500Mi", "1Gi", "1500Mi", "3Gi")
_RESTARTING: Final[Json] = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}],
}


def resources(dice: Dice, *, is_large: bool, is_running: bool = False, image: str = "i:1") -> Json:
    """The words of the short form: one container, several, or none with requests."""
    if dice.chance(0.3):
        return {"requests": _amounts(dice, is_large=is_large), "image": image}
    is_whole = dice.chance(0.25)
    containers = _containers(dice, "c", dice.number(1, 3), is_large=is_large and not is_whole)
    containers[0]["image"] = image
    if dice.chance(0.05):
        containers[-1] |= _RESTARTING
    pod: Json = {"containers": containers}
    if dice.chance(0.5):
        pod["initContainers"] = _starting(dice, is_large=is_large and not is_whole)
    if is_whole:
        pod["resources"] = _as_a_whole(dice)
    if dice.chance(0.15):
        pod["overhead"] = dice.one(
            ({"cpu": "50m"}, {"memory": "100Mi"}, {"cpu": "250m", "memory": "120Mi", "example.com/gpu": "1"})
        )
    if is_running and dice.chance(0.35):
        pod["status"] = _resizing(dice, pod)
    return pod


def _containers(dice: Dice, name: str, count: int, *, is_large: bool) -> list[Json]:
    return [_container(dice, f"{name}{i}", is_large=is_large and dice.chance(0.4)) for i in range(count)]


def _starting(dice: Dice, *, is_large: bool) -> list[Json]:
    """Sidecars and those that are over before the next one begins, in any order."""
    found = _containers(dice, "s", dice.number(1, 3), is_large=is_large)
    for container in found:
        if dice.chance(0.5):
            container["restartPolicy"] = "Always"
    return found


def _container(dice: Dice, name: str, *, is_large: bool) -> Json:
    container: Json = {"name": name, "image": "i:1"}
    amounts = _amounts(dice, is_large=is_large)
    if extended := {resource: amount for resource, amount in amounts.items() if resource not in _NATIVE}:
        container["resources"] = {"requests": amounts, "limits": extended}  # the API wants them, and equal
    elif amounts:
        container["resources"] = {dice.one(("requests", "requests", "limits")): amounts}
    return container


def _amounts(dice: Dice, *, is_large: bool) -> dict[str, str]:
    amounts: dict[str, str] = {}
    if dice.chance(0.75):
        amounts["cpu"] = dice.one(_LARGE_CPU if is_large else _SMALL_CPU)
    if dice.chance(0.6):
        amounts["memory"] = dice.one(_LARGE_MEMORY if is_large else _SMALL_MEMORY)
    if dice.chance(0.12):
        amounts["ephemeral-storage"] = dice.one(("0", "1", "600Mi", "1500m"))
    if dice.chance(0.08):
        amounts["example.com/gpu"] = dice.one(("0", "1", "2"))
    if amounts.keys() & {"cpu", "memory"} and dice.chance(0.06):
        amounts["hugepages-2Mi"] = dice.one(("2Mi", "64Mi", "100Mi"))
    if dice.chance(0.06):
        amounts[dice.one(("example.com/fpga", "vendor.example.com/nic"))] = "1"
    return amounts


def _as_a_whole(dice: Dice) -> Json:
    """More than all small containers together, as the API wants it."""
    requests: dict[str, str] = {}
    if dice.chance(0.8):
        requests["cpu"] = dice.one(("2", "2500m", "4"))
    if dice.chance(0.7) or not requests:
        requests["memory"] = dice.one(("2Gi", "2500Mi", "3G"))
    return {dice.one(("requests", "requests", "limits")): requests}


def _resizing(dice: Dice, pod: Json) -> Json:
    """What a kubelet says of containers that it gave, or gives, something else."""
    status: Json = {
        "containerStatuses": [_seen(dice, container) for container in pod["containers"] if dice.chance(0.8)]
    }
    if sidecars := [container for container in pod.get("initContainers", ()) if dice.chance(0.5)]:
        status["initContainerStatuses"] = [_seen(dice, container) for container in sidecars]
    if "resources" in pod and dice.chance(0.6):
        status["resources"] = {"requests": _held(dice)}
        status["allocatedResources"] = _held(dice)
    if dice.chance(0.5):
        reason = dice.one(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def _seen(dice: Dice, container: Json) -> Json:
    seen: Json = {"name": container["name"], "ready": True, "restartCount": 0, "image": "i:1", "imageID": ""}
    if dice.chance(0.8):
        seen["resources"] = {"requests": _held(dice)}
    if dice.chance(0.7):
        seen["allocatedResources"] = _held(dice)
    return seen


def _held(dice: Dice) -> dict[str, str]:
    held: dict[str, str] = {}
    if dice.chance(0.8):
        held["cpu"] = dice.one((*_SMALL_CPU, "250500u", "1", "1500m"))
    if dice.chance(0.7):
        held["memory"] = dice.one((*_SMALL_MEMORY, "1Gi"))
    return held

"""Equal devices are one kind, whatever they are called: what holds of one of them is found out once.

A kind is everything of a device that a decision may read, without its name and without the nodes it can be used on.
"""

from __future__ import annotations

import itertools
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from scheduler.core.devices import Device, DeviceTaint
from scheduler.core.quantity import Quantity


class DeviceKind:
    """`device` is one of them, as their driver published it. Compared by identity.

    `number` is its own and never used again: a cache keyed by it does not keep the kind alive.
    """

    __slots__ = ("__weakref__", "device", "driver", "number")

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.device = device
        self.number = next(_numbers)


def _amount(value: object) -> tuple[int, int, int, bool]:
    """With its spelling: selectors can ask whether a quantity is an integer, which "1000m" is not."""
    assert isinstance(value, Quantity)
    return (value.nano, *value.form)


_numbers: Final = itertools.count()
_encode = msgspec.json.Encoder(enc_hook=_amount, order="deterministic").encode
_known: Final[WeakValueDictionary[bytes, DeviceKind]] = WeakValueDictionary()


def kind_of(driver: str, device: Device) -> DeviceKind:
    """The kind of this device. Some 5 µs; lives as long as any such device is known."""
    bare = msgspec.structs.replace(
        device,
        name="",
        node_name=None,
        node_selector=None,
        all_nodes=None,
        taints=tuple(DeviceTaint(t.key, t.value, t.effect) for t in device.taints),
    )
    key = driver.encode() + b"\0" + _encode(bare)
    kind = _known.get(key)
    if kind is None:
        kind = _known[key] = DeviceKind(driver, bare)
    return kind

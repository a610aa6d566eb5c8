"""Device classes, and which of them stands for an extended resource (docs/spec/dra.md §3.12).

Of two classes that name one resource the newer wins, then the one whose name comes first. It is worked out from the
classes there are, so the order of events leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.core.resourceclaims import IMPLICIT_EXTENDED_RESOURCE, DeviceClass


class DeviceClasses:
    """By name."""

    def __init__(self) -> None:
        self.generation = 0
        """Grows with every change."""
        self._classes: dict[str, DeviceClass] = {}
        self._by_resource: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._classes)

    def __iter__(self) -> Iterator[DeviceClass]:
        return iter(self._classes.values())

    def get(self, name: str) -> DeviceClass | None:
        """The class of this name."""
        return self._classes.get(name)

    def put(self, name: str, device_class: DeviceClass | None) -> None:
        """A class came, changed, or went."""
        old = self._classes.pop(name, None)
        if old is not None and old.spec.extended_resource_name:
            names = self._by_resource[old.spec.extended_resource_name]
            del names[name]
            if not names:
                del self._by_resource[old.spec.extended_resource_name]
        if device_class is not None:
            self._classes[name] = device_class
            if device_class.spec.extended_resource_name:
                self._by_resource.setdefault(device_class.spec.extended_resource_name, {})[name] = None
        self.generation += 1

    def for_resource(self, resource: str) -> DeviceClass | None:
        """The class that an extended resource is served from, None if there is none."""
        names = self._by_resource.get(resource)
        if names:
            newest = max(self._classes[name].metadata.creation_timestamp or "" for name in names)
            return self._classes[min(n for n in names if (self._created(n)) == newest)]
        if resource.startswith(IMPLICIT_EXTENDED_RESOURCE):
            return self._classes.get(resource.removeprefix(IMPLICIT_EXTENDED_RESOURCE))
        return None

    def _created(self, name: str) -> str:
        return self._classes[name].metadata.creation_timestamp or ""

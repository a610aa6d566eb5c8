"""The nodes of each image, by each of its names (docs/spec/core.md §2.2, §5.7).

Nodes may report different sizes for one name. While several nodes have it, the first reported size counts. When one
node is left, its own size counts; upstream has the same result after that node's next heartbeat.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.api.core_v1 import ContainerImage
from scheduler.core import nodeset
from scheduler.core.nodeset import EMPTY, NodeSet

_FEW: Final = 16


class ImageState(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One image name.

    A change creates a new object, and objects are compared by identity, so they can be keys of memos.
    """

    size_bytes: int
    few: tuple[int, ...] = ()
    """The slots if they are few, as for most images: a node set costs memory for all slots."""
    many: NodeSet = EMPTY

    @property
    def nodes(self) -> NodeSet:
        return self.many or nodeset.of(self.few)

    def joined(self, slot: int) -> ImageState:
        """Return the state with one more node."""
        if self.many:
            return ImageState(self.size_bytes, many=self.many | 1 << slot)
        few = (*self.few, slot)
        if len(few) <= _FEW:
            return ImageState(self.size_bytes, few)
        return ImageState(self.size_bytes, many=nodeset.of(few))

    def without(self, slot: int) -> ImageState:
        if not self.many:
            return ImageState(self.size_bytes, tuple([other for other in self.few if other != slot]))
        many = self.many ^ 1 << slot
        if many.bit_count() > _FEW:
            return ImageState(self.size_bytes, many=many)
        return ImageState(self.size_bytes, tuple(nodeset.each(many)))


class ImageIndex:
    """A map of name → ImageState for all images on nodes.

    Upstream: pkg/scheduler/backend/cache/cache.go addNodeImageStates, removeNodeImageStates
    """

    def __init__(self) -> None:
        self.states: dict[str, ImageState] = {}
        """The images of all nodes by name. Read-only."""
        self.on: dict[int, tuple[ContainerImage, ...]] = {}
        """Slot → the images of its last heartbeat. Read-only."""

    def put(self, slot: int, images: tuple[ContainerImage, ...]) -> None:
        """Set the images of the node at `slot`; none if it is gone.

        The cost is a comparison if nothing changed, else some µs per changed image.
        """
        before = self.on.get(slot, ())
        if images:
            self.on[slot] = images
        else:
            self.on.pop(slot, None)
        if before == images:
            return
        had, has = sizes_of(before), sizes_of(images)
        for name in had.keys() - has.keys():
            self._leave(slot, name)
        for name, size_bytes in has.items():
            state = self.states.get(name)
            if state is None or (state.few == (slot,) and state.size_bytes != size_bytes):
                self.states[name] = ImageState(size_bytes, (slot,))
            elif name not in had:
                self.states[name] = state.joined(slot)

    def _leave(self, slot: int, name: str) -> None:
        state = self.states[name].without(slot)
        if len(state.few) == 1:
            images = self.on[state.few[0]]
            size_bytes = next(image.size_bytes for image in images if name in (image.names or ()))
            self.states[name] = ImageState(size_bytes, state.few)
        elif state.few or state.many:
            self.states[name] = state
        else:
            del self.states[name]


def sizes_of(images: tuple[ContainerImage, ...]) -> dict[str, int]:
    """Return name → size in bytes. The first of several images with a name counts."""
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes

"""The nodes of each image, by each of its names (docs/spec/core.md §2.2, §5.7).

Nodes may report different sizes for one name. While several nodes have it, the first reported size counts. When one
node is left, its own size counts; upstream has the same result after that node's next heartbeat.
"""

from __future__ import annotations

import msgspec

from scheduler.api.core_v1 import ContainerImage
from scheduler.core.nodeset import NodeSet


class ImageState(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One image name.

    A change creates a new object, and objects are compared by identity, so they can be keys of memos.
    """

    size_bytes: int
    nodes: NodeSet


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
        had, has, bit = sizes_of(before), sizes_of(images), 1 << slot
        for name in had.keys() - has.keys():
            self._leave(slot, name)
        for name, size_bytes in has.items():
            state = self.states.get(name)
            if state is None or (state.nodes == bit and state.size_bytes != size_bytes):
                self.states[name] = ImageState(size_bytes, bit)
            elif name not in had:
                self.states[name] = ImageState(state.size_bytes, state.nodes | bit)

    def _leave(self, slot: int, name: str) -> None:
        state = self.states.pop(name)
        nodes, size_bytes = state.nodes & ~(1 << slot), state.size_bytes
        if nodes.bit_count() == 1:
            images = self.on[nodes.bit_length() - 1]
            size_bytes = next(image.size_bytes for image in images if name in (image.names or ()))
        if nodes:
            self.states[name] = ImageState(size_bytes, nodes)


def sizes_of(images: tuple[ContainerImage, ...]) -> dict[str, int]:
    """Return name → size in bytes. The first of several images with a name counts."""
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes

"""ImageLocality: prefers nodes that already have the pod's images (docs/spec/core.md §5.7).

An image counts by its size and by the share of nodes that have it, so that one node with a popular image does not
get all pods. Names are compared as the node reports them, as in upstream: `docker.io/library/app:1` on the node is
not `app:1` in the pod. The number of nodes that have an image is always current; upstream's is as old as the last
change of the scored node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.api.podinfo import PodInfo
from scheduler.cache.nodes.images import ImageState
from scheduler.core import nodeset
from scheduler.core.feature_gates import IMAGE_VOLUMES
from scheduler.core.nodeset import NodeSet
from scheduler.framework.handle import Handle
from scheduler.framework.interface import MAX_NODE_SCORE, CycleState, Scores
from scheduler.framework.memo import ByObjects

_LEAST_BYTES: Final = 23 * 1024 * 1024
_MOST_BYTES: Final = 1000 * 1024 * 1024
"""For each container."""


class ImageLocality:
    """Score. Needs no normalization.

    Upstream: pkg/scheduler/framework/plugins/imagelocality/image_locality.go ImageLocality
    """

    name: Final = "ImageLocality"

    def __init__(self, args: object, handle: Handle) -> None:
        self._nodes = handle.cluster.nodes
        self._counts_volumes = IMAGE_VOLUMES in handle.feature_gates
        self._columns: ByObjects[Scores] = ByObjects(self._nodes, size=256)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeSet) -> Scores:
        """Return 0 for up to 23 MiB of the pod's images, and 100 from 1000 MiB for each of its containers.

        Since 1.37 an image volume counts like a container; before, it counted as present only.
        """
        spec = pod.pod.spec
        wanted = [container.image for container in (*spec.init_containers, *spec.containers)]
        containers = len(wanted)
        wanted += [volume.image.reference for volume in spec.volumes if volume.image is not None]
        if self._counts_volumes:
            containers = len(wanted)
        images = self._nodes.images.states
        found = [image for name in wanted if (image := images.get(full_name(name))) is not None]
        shape = (containers, *found) if found else ()
        return self._columns.get(shape, lambda: self._column(found, containers))

    def _column(self, images: Sequence[ImageState], containers: int) -> Scores:
        capacity, node_count = self._nodes.capacity, len(self._nodes)
        enough = _MOST_BYTES * containers
        sums: Scores = np.zeros(capacity, dtype=np.int64)
        for image in images:
            share = image.nodes.bit_count() / node_count
            # Cap each image, so that a wrong size reported by a node cannot overflow the column.
            sums[nodeset.slots(image.nodes, capacity)] += min(int(image.size_bytes * share), enough)
        return MAX_NODE_SCORE * (np.clip(sums, _LEAST_BYTES, enough) - _LEAST_BYTES) // (enough - _LEAST_BYTES)


def full_name(image: str) -> str:
    """Return the name as nodes report it: `:latest` without tag or digest. A colon before the last slash is a port."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"

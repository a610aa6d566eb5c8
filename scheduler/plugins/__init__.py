"""The plugins of this version, and those that installed packages offer as entry points.

Plugins do not import each other; what two plugins need is in `core`, `cache` or `framework`.

Upstream: pkg/scheduler/framework/plugins/registry.go NewInTreeRegistry
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Final

from scheduler.config.errors import PluginLoadError
from scheduler.framework.profile import Factory
from scheduler.plugins.defaultbinder import DefaultBinder
from scheduler.plugins.defaultpreemption import DefaultPreemption
from scheduler.plugins.dra import DynamicResources
from scheduler.plugins.gangscheduling import GangScheduling
from scheduler.plugins.imagelocality import ImageLocality
from scheduler.plugins.interpodaffinity import InterPodAffinity
from scheduler.plugins.nodeaffinity import NodeAffinityPlugin
from scheduler.plugins.nodedeclaredfeatures import NodeDeclaredFeatures
from scheduler.plugins.nodename import NodeName
from scheduler.plugins.nodeports import NodePorts
from scheduler.plugins.noderesourcesbalancedallocation import NodeResourcesBalancedAllocation
from scheduler.plugins.noderesourcesfit import NodeResourcesFit
from scheduler.plugins.nodeunschedulable import NodeUnschedulable
from scheduler.plugins.nodevolumelimits import NodeVolumeLimits
from scheduler.plugins.podtopologyspread import PodTopologySpread
from scheduler.plugins.prioritysort import PrioritySort
from scheduler.plugins.schedulinggates import SchedulingGates
from scheduler.plugins.tainttoleration import TaintToleration
from scheduler.plugins.volumebinding import VolumeBinding
from scheduler.plugins.volumerestrictions import VolumeRestrictions
from scheduler.plugins.volumezone import VolumeZone

GROUP: Final = "kubestow.plugins"
"""The entry point group: an entry's name is the plugin's, its object a `Factory`."""

BUILT_IN: Final[Mapping[str, Factory]] = {
    SchedulingGates.name: SchedulingGates,
    PrioritySort.name: PrioritySort,
    NodeUnschedulable.name: NodeUnschedulable,
    NodeName.name: NodeName,
    TaintToleration.name: TaintToleration,
    NodeAffinityPlugin.name: NodeAffinityPlugin,
    NodePorts.name: NodePorts,
    NodeResourcesFit.name: NodeResourcesFit,
    PodTopologySpread.name: PodTopologySpread,
    InterPodAffinity.name: InterPodAffinity,
    VolumeRestrictions.name: VolumeRestrictions,
    NodeVolumeLimits.name: NodeVolumeLimits,
    VolumeBinding.name: VolumeBinding,
    VolumeZone.name: VolumeZone,
    DynamicResources.name: DynamicResources,
    DefaultPreemption.name: DefaultPreemption,
    NodeResourcesBalancedAllocation.name: NodeResourcesBalancedAllocation,
    ImageLocality.name: ImageLocality,
    DefaultBinder.name: DefaultBinder,
    NodeDeclaredFeatures.name: NodeDeclaredFeatures,
    GangScheduling.name: GangScheduling,
}


class PluginClash(PluginLoadError):
    """Two plugins have the same name. The message names both."""


class PluginBroken(PluginLoadError):
    """An installed plugin cannot be imported. The cause is the exception of the import."""


def registry() -> Mapping[str, Factory]:
    """Return plugin name → factory. Imports every installed plugin, also those that no profile names.

    Raises PluginClash if an entry point has the name of a built-in plugin or of another entry point, and
    PluginBroken if one cannot be imported.
    """
    found = dict(BUILT_IN)
    origin = {name: f"the built-in {_place(factory)}" for name, factory in BUILT_IN.items()}
    for entry in metadata.entry_points(group=GROUP):
        place = f'"{entry.value}"' + (f" of {entry.dist.name}" if entry.dist else "")
        if entry.name in origin:
            raise PluginClash(f'plugin "{entry.name}" is both {origin[entry.name]} and {place}')
        origin[entry.name] = place
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            raise PluginBroken(
                f'plugin "{entry.name}", {place}, cannot be imported: {type(error).__name__}: {error}'
            ) from error
    return found


def _place(factory: Factory) -> str:
    return f'"{factory.__module__}:{getattr(factory, "__qualname__", factory)}"'

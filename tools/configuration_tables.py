"""Print the tables of docs/configuration.md about the configuration document.

Defaults, and the fields without effect, come from the reader. The texts of Kubestow's own fields are their docstrings.
The texts of the other fields are here; a test compares them with the fields that the reader reads.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from scheduler.config import args as kinds
from scheduler.config.args import SPELLED, UPSTREAM, KnownArgs, KubestowArgs, default_args
from scheduler.config.dump import to_document
from scheduler.config.load import default, gates_on, parse
from scheduler.config.plugins import DEFAULT_PLUGINS, LATER_POINTS, MULTI_POINT, POINTS
from scheduler.config.types import GATES_ON
from scheduler.core.feature_gates import CAPACITY_SCORING, GATES as STAGES, VERSIONS

FIELDS: Final[Mapping[str, str]] = {
    "apiVersion": "`kubescheduler.config.k8s.io/v1`; required.",
    "kind": "`KubeSchedulerConfiguration`; required.",
    "parallelism": "Kubestow has no threads for it; above 0.",
    "clientConnection.kubeconfig": "A file. `--kubeconfig` has precedence.",
    "clientConnection.qps": "Requests per second to the API server; negative: no limit; 0: the default. `--kube-api-qps` has precedence.",
    "clientConnection.burst": "Requests at once after a pause; 0: the default. `--kube-api-burst` has precedence.",
    "clientConnection.acceptContentTypes": "Kubestow always uses JSON.",
    "clientConnection.contentType": "Kubestow always uses JSON.",
    "leaderElection.leaderElect": "Only the replica that holds the Lease schedules.",
    "leaderElection.leaseDuration": "Time without a renewal after which a standby takes over; more than `renewDeadline`.",
    "leaderElection.renewDeadline": "Time without a renewal after which the leader ends; more than 1.2 times `retryPeriod`.",
    "leaderElection.retryPeriod": "Time between two tries to renew or to acquire.",
    "leaderElection.resourceLock": "`leases` is the only kind.",
    "leaderElection.resourceName": "Name of the Lease. `kube-scheduler` in `kube-system` is refused.",
    "leaderElection.resourceNamespace": "Namespace of the Lease.",
    "percentageOfNodesToScore": "Percentage of the nodes that are scored, at least 100 of those that fit; absent or 0: all.",
    "percentageOfPlacementsToScore": "A field of kube-scheduler since 1.37, of profiles since 1.38; 0..100.",
    "podInitialBackoffSeconds": "Seconds until the next attempt after the first failed one; doubles each time.",
    "podMaxBackoffSeconds": "Longest time until the next attempt; not below the first.",
    "delayCacheUntilActive": "A standby has no cache and is not ready before it leads: less load, a slower failover.",
    "enableProfiling": "Kubestow has no profiling pages.",
    "enableContentionProfiling": "As above.",
    "extenders": "HTTP extenders, shared by all profiles ([fields](extenders.md#fields)).",
    "profiles": "Without profiles there is one, named `kubestow`, with all defaults.",
    "profiles[].schedulerName": "The scheduler name of pods. Required; `default-scheduler` only with `--allow-default-scheduler`.",
    "profiles[].percentageOfNodesToScore": "As above, for this profile.",
    "profiles[].percentageOfPlacementsToScore": "As above, for this profile.",
    "profiles[].plugins.<point>.enabled[].name": "A plugin. In `multiPoint` it is enabled at all its points,"
    " after the defaults. At a point it comes first if it is already enabled there, otherwise last. A default that is listed"
    " again gets the new weight.",
    "profiles[].plugins.<point>.enabled[].weight": "Weight of its score; 0 means 1.",
    "profiles[].plugins.<point>.disabled[].name": "A default to disable; `*`: all of them.",
    "profiles[].plugins.<point>.disabled[].weight": "Accepted without effect.",
    "profiles[].pluginConfig[].name": "A plugin, or `Kubestow`; once each.",
    "profiles[].pluginConfig[].args": "See [arguments](#plugin-arguments). `apiVersion` and `kind` are optional.",
}
_TRUE_IN_YAML: Final = "on"
_FIELD: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_SHAPE: Final = {
    "utilization": "Percent, 0..100, strictly increasing.",
    "score": "Score of a node with that utilization, 0..10; linear between points.",
}
ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": "Percentage of the nodes that are tried at least.",
        "minCandidateNodesAbsolute": "Number of nodes that are tried at least. One of the two must be above 0.",
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": "0..100.",
        "ignorePreferredTermsOfExistingPods": "Ignore preferred affinity terms of running pods in scores.",
    },
    "NodeAffinity": {"addedAffinity": "A NodeAffinity in addition to that of each pod."},
    "NodeResourcesFit": {
        "ignoredResources": "Names of resources that are not checked.",
        "ignoredResourceGroups": "Groups (the part before `/`) of resources that are not checked.",
        "scoringStrategy.type": "`LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`; required in a `scoringStrategy`.",
        "scoringStrategy.resources": "Resources and their weights.",
        "scoringStrategy.resources[].name": "Name of the resource.",
        "scoringStrategy.resources[].weight": "1..100; default 1.",
        "scoringStrategy.requestedToCapacityRatio.shape": "A curve; required with that type, otherwise not allowed.",
        **{f"scoringStrategy.requestedToCapacityRatio.shape[].{name}": text for name, text in _SHAPE.items()},
    },
    "NodeResourcesBalancedAllocation": {
        "resources": "Resources that count.",
        "resources[].name": "Name of the resource; once each.",
        "resources[].weight": "1, or omitted.",
    },
    "PodTopologySpread": {
        "defaultingType": "`System`: upstream's soft constraints over hosts and zones. `List`: the constraints below, or none.",
        "defaultConstraints": "With `List`: constraints for pods without constraints.",
        "defaultConstraints[].maxSkew": "Required.",
        "defaultConstraints[].topologyKey": "Required.",
        "defaultConstraints[].whenUnsatisfiable": "`DoNotSchedule` or `ScheduleAnyway`; required.",
        "defaultConstraints[].minDomains": "Only used with `DoNotSchedule`.",
        "defaultConstraints[].nodeAffinityPolicy": "`Honor` or `Ignore`.",
        "defaultConstraints[].nodeTaintsPolicy": "`Honor` or `Ignore`.",
        "defaultConstraints[].matchLabelKeys": "Labels whose values pods must share to count.",
        "defaultConstraints[].labelSelector": "Refused: the selector is deduced for each pod.",
    },
    "VolumeBinding": {
        "bindTimeoutSeconds": "Time that a pod waits for its volumes before the attempt ends. 0: it does not wait.",
        "shape": f"A curve over the used capacity; with the gate `{CAPACITY_SCORING}` only.",
        **{f"shape[].{name}": text for name, text in _SHAPE.items()},
    },
    "DynamicResources": {
        "filterTimeout": "Time limit for the search of one node's devices; 0s: no limit. With `DRASchedulerFilterTimeout` only.",
        "bindingTimeout": "Time limit for binding conditions; at least 1s. With `DRADeviceBindingConditions` only.",
    },
    KubestowArgs.plugin: {
        "parity": "Sets every switch below except `victims` to kube-scheduler's behaviour, and turns off the differences listed below the table; a contradicting switch is a mistake.",
    },
}
GATES: Final[Mapping[str, str]] = {
    CAPACITY_SCORING: "VolumeBinding scores nodes by the free capacity for new volumes.",
    "VolumeLimitScaling": "Nodes without a CSI driver get no pods with its volumes if its CSIDriver has `preventPodSchedulingIfMissing`.",
    "DynamicResourceAllocation": "Dynamic resource allocation. kube-scheduler 1.38 has no such gate and refuses it.",
    "DRAAdminAccess": "Requests with `adminAccess` may use devices that are in use.",
    "DRAPrioritizedList": "`firstAvailable`: the first of several requests that can be satisfied.",
    "DRAPartitionableDevices": "Shared counters: devices that are partitions of one device.",
    "DRADeviceTaints": "Taints in slices, tolerations in requests.",
    "DRADeviceTaintRules": "Taints by DeviceTaintRule objects, which are watched with this gate.",
    "DRAConsumableCapacity": "Devices whose capacity several claims share; `distinctAttribute`.",
    "DRADeviceBindingConditions": "Devices that must be ready before the pod is bound.",
    "DRAResourceClaimDeviceStatus": "Device status in claims, which has these conditions.",
    "DRAExtendedResource": "Extended resources that device classes serve.",
    "DRASchedulerFilterTimeout": "`filterTimeout` of DynamicResources.",
    "DRAFractionalCapacityRange": "Ranges of shared capacities with fractions: `min`, `max` and `step` in thousandths. On in 1.37 with `--min-compatibility-version=1.37`.",
}
_EVERYTHING: Final[Mapping[str, Any]] = {
    "apiVersion": kinds.KUBE_SCHEDULER_V1,
    "kind": "KubeSchedulerConfiguration",
    "parallelism": 16,
    "clientConnection": {"kubeconfig": "f", "qps": 50, "burst": 100, "acceptContentTypes": "a", "contentType": "a"},
    "leaderElection": {"leaderElect": True},
    "percentageOfNodesToScore": 50,
    "percentageOfPlacementsToScore": 50,
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 10,
    "delayCacheUntilActive": False,
    "enableProfiling": True,
    "enableContentionProfiling": True,
    "profiles": [{"schedulerName": "kubestow", "percentageOfPlacementsToScore": 50}],
}
"""All fields next to `profiles`, to find out which have no effect."""


def sections() -> str:
    """Return all tables of the document, each under its heading."""
    return "\n".join([_fields(), _plugins(), *(_arguments(args) for args in default_args().values()), _gates()])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table and an empty line."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(value: Any) -> str:
    """Return the value in the form of a file, in one line; "" for None and for an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f'`"{value}"`' if value == _TRUE_IN_YAML else f"`{value}`" * bool(value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def ignored() -> frozenset[str]:
    """Return the fields that are accepted without effect."""
    found = parse(json.dumps(_EVERYTHING), source="all fields").ignored
    return frozenset(path.replace("[0]", "[]") for path in found)


# -- sections ----------------------------------------------------------------------------------------------------------


def _fields() -> str:
    usual, nothing = _flat(to_document(default())), ignored()
    usual["profiles[].schedulerName"] = None  # a written profile has no default name
    rows = [
        (
            code(path),
            code(usual.get(path)) if path != "profiles" else "",
            f"{'*No effect.* ' * (path in nothing)}{text}",
        )
        for path, text in FIELDS.items()
    ]
    points = ", ".join(code(point) for point in (MULTI_POINT, *POINTS))
    later = ", ".join(code(point) for point in LATER_POINTS)
    return f"{_FIELDS_HEAD}{table(('field', 'default', ''), rows)}\n`<point>` is one of {points}. These may be present if they are empty: {later}.\n"


_FIELDS_HEAD: Final = """\
## Fields

A field that is not in this table is a mistake, reported with its path; so is a value of another type. Fields with *no effect* are accepted because
kube-scheduler accepts them; `check-config` and the log at start list them.

"""


def _plugins() -> str:
    given = default_args()
    rows = [
        (
            code(ref.name),
            str(ref.weight or ""),
            f"[arguments](#{ref.name.lower()})" if ref.name in given else "",
        )
        for ref in DEFAULT_PLUGINS
    ]
    return f"{_PLUGINS_HEAD}{table(('plugin', 'weight', ''), rows)}\n## Plugin arguments\n"


_PLUGINS_HEAD: Final = """\
## Default plugins

In this order, at each of their points: those of kube-scheduler 1.36, and GangScheduling with `groups: on`. Since 1.37, NodeName comes before
NodeUnschedulable.

"""


def _arguments(args: KnownArgs) -> str:
    said = _FIELD.sub(_spelled, " ".join(inspect.cleandoc(type(args).__doc__ or "").split()))
    head = f"### {args.plugin}\n\n`{args.plugin}Args`. {said}\n\n".replace(
        "`KubestowArgs`.", "`KubestowArgs` of `kubestow.dev/v1alpha1`."
    )
    usual = _usual()[args.plugin]
    if isinstance(args, KubestowArgs):
        return f"{head}{table(('field', 'default', 'kube-scheduler', ''), _switches(usual))}{_followers()}"
    rows = ((code(field), code(usual.get(field)), text) for field, text in ARGUMENTS[args.plugin].items())
    return head + table(("field", "default", ""), rows)


def _spelled(field: re.Match[str]) -> str:
    """Return the field's name in the spelling of a file."""
    first, *rest = field[1].split("_")
    return code("".join([first, *(word.capitalize() for word in rest)]))


def _switches(usual: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    texts = _docstrings(KubestowArgs)
    for field in dataclasses.fields(KubestowArgs):
        if field.name in UPSTREAM.keys() - SPELLED.keys():
            continue
        spelled = SPELLED.get(field.name, field.name)
        upstream = UPSTREAM.get(field.name, None if field.name == "parity" else usual[spelled])
        text = texts.get(field.name) or ARGUMENTS[KubestowArgs.plugin][spelled]
        yield code(spelled), code(usual[spelled]), code([] if upstream == () else upstream), text


def _followers() -> str:
    texts = _docstrings(KubestowArgs)
    items = "".join(f"* {texts[name]}\n" for name in UPSTREAM if name not in SPELLED)
    return f"{_FOLLOWERS_HEAD}{items}{_FOLLOWERS_TAIL}"


_FOLLOWERS_HEAD: Final = """
`parity: true` also turns these differences off. They have no field:

"""
_FOLLOWERS_TAIL: Final = """* A volume or claim that another component changed is read again and written again, up to three times.
* A selected node that Kubestow wrote is cleared once that node is deleted, or has refused the pod for a minute while nothing else ties the pod to it.
* A pod whose claim is being bound for another pod waits. kube-scheduler refuses it.
"""


def _gates() -> str:
    rows = [(code(name), *_stages(name), f"{text}{_needs(name)}") for name, text in GATES.items()]
    return f"{_GATES_HEAD}{table(('gate', *VERSIONS, ''), rows)}"


_GATES_HEAD: Final = """\
## Feature gates

The flag `--feature-gates=NAME=true,…` of `run`, `simulate` and `check-config` sets them; they are not part of the document. The default depends on the version
of kube-scheduler: `run` takes the version of the API server, `simulate --from-cluster` that of the cluster, and the other commands take 1.36. `--emulated-version` wins.
A locked gate cannot be set to another value. A gate that the version of kube-scheduler removed is refused as there. Any other gate that is not listed has no effect, and a line on standard error names it.

"""


def _stages(name: str) -> Iterable[str]:
    """Return the default of the gate in each version, and whether it is locked."""
    for version in VERSIONS:
        stage = STAGES[name][version]
        yield f"{'on' if stage.is_on else 'off'}{', locked' * stage.is_locked}"


def _needs(name: str) -> str:
    needs = [code(other) for other in STAGES if _refusal({name: True, other: False}).startswith(f"{name} is enabled")]
    return f" Needs {', '.join(needs)}." if needs else ""


def _refusal(gates: Mapping[str, bool]) -> str:
    try:
        gates_on(gates)
    except ValueError as refused:
        return str(refused)
    return ""


# -- what the code says ------------------------------------------------------------------------------------------------


def _usual() -> dict[str, dict[str, Any]]:
    """Return plugin → field → default, with the gate that a curve needs."""
    (profile,) = to_document(default(feature_gates=GATES_ON | {CAPACITY_SCORING}))["profiles"]
    return {each["name"]: _flat(each["args"]) for each in profile["pluginConfig"]}


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return path → value; lists are values."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= {f"{name}.{rest}": deeper for rest, deeper in _flat(value).items()}
        else:
            found[name] = value
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Return field → its docstring."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for field, text in itertools.pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }

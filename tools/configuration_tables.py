"""What a configuration may say, as tables: the part of docs/configuration.md that is about the document.

Defaults come from the reader, what has no effect from what it says of a document that has it all, and what Kubestow's
own switches do from their docstrings. The texts of the other fields are here; a test holds them to the fields that are
asked for.
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
from scheduler.config.types import CAPACITY_SCORING, FEATURE_GATES, GATES_ON

FIELDS: Final[Mapping[str, str]] = {
    "apiVersion": "`kubescheduler.config.k8s.io/v1`; required.",
    "kind": "`KubeSchedulerConfiguration`; required.",
    "parallelism": "There are no threads that it could number; above 0.",
    "clientConnection.kubeconfig": "A file. `--kubeconfig` wins.",
    "clientConnection.qps": "Requests a second to the API server; negative: no limit; 0: the default. `--kube-api-qps` wins.",
    "clientConnection.burst": "How many may go at once; 0: the default. `--kube-api-burst` wins.",
    "clientConnection.acceptContentTypes": "JSON is spoken, whatever is asked for.",
    "clientConnection.contentType": "JSON is spoken, whatever is asked for.",
    "leaderElection.leaderElect": "Of several replicas only the holder of the Lease decides.",
    "leaderElection.leaseDuration": "Others take over after so long without a renewal; more than `renewDeadline`.",
    "leaderElection.renewDeadline": "The leader ends after so long without one; more than 1.2 times `retryPeriod`.",
    "leaderElection.retryPeriod": "Between two tries to renew or to acquire.",
    "leaderElection.resourceLock": "`leases` is the only kind there is.",
    "leaderElection.resourceName": "Of the Lease. `kube-scheduler` in `kube-system` is refused.",
    "leaderElection.resourceNamespace": "Of the Lease.",
    "percentageOfNodesToScore": "0..100 of the nodes, but at least 100, of those that fit are scored; absent or 0: all.",
    "percentageOfPlacementsToScore": "Of kube-scheduler 1.37; 0..100.",
    "podInitialBackoffSeconds": "How long a pod rests after its first attempt in vain; doubles each time.",
    "podMaxBackoffSeconds": "How long at most; not below the first.",
    "delayCacheUntilActive": "A standby mirrors nothing, and is not ready, before it leads: less load, a slower change-over.",
    "enableProfiling": "There are no profiling pages, whatever it says.",
    "enableContentionProfiling": "As above.",
    "extenders": "Checked, and then refused: there are none yet ([limits](limits.md#extenders)).",
    "profiles": "Without any there is one, named `kubestow`, with every default.",
    "profiles[].schedulerName": "What pods name. Required; `default-scheduler` only with `--allow-default-scheduler`.",
    "profiles[].percentageOfNodesToScore": "As above, for this profile.",
    "profiles[].plugins.<point>.enabled[].name": "A plugin. In `multiPoint`: at each point that it has,"
    " behind the defaults. At a point: ahead of the others if it is there anyway, else behind them. Named again, a default"
    " takes the new weight.",
    "profiles[].plugins.<point>.enabled[].weight": "Of its score; 0 is 1.",
    "profiles[].plugins.<point>.disabled[].name": "A default that is left out; `*`: all of them.",
    "profiles[].plugins.<point>.disabled[].weight": "Read, and has no meaning.",
    "profiles[].pluginConfig[].name": "A plugin, or `Kubestow`; once each.",
    "profiles[].pluginConfig[].args": "See [arguments](#plugin-arguments). `apiVersion` and `kind` may be left out.",
}
_TRUE_IN_YAML: Final = "on"
_FIELD: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_SHAPE: Final = {
    "utilization": "Percent, 0..100, each above the one before.",
    "score": "What a node with that much in use is worth, 0..10; linear between points.",
}
ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "DefaultPreemption": {
        "minCandidateNodesPercentage": "So many percent of the nodes are tried at least.",
        "minCandidateNodesAbsolute": "So many nodes are tried at least. The two are not 0 together.",
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": "0..100.",
        "ignorePreferredTermsOfExistingPods": "Do not let what pods that run prefer count in scores.",
    },
    "NodeAffinity": {"addedAffinity": "A NodeAffinity, beside that of each pod."},
    "NodeResourcesFit": {
        "ignoredResources": "Names that are not checked.",
        "ignoredResourceGroups": "What stands before the `/` of names that are not checked.",
        "scoringStrategy.type": "`LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`; required where there is a `scoringStrategy`.",
        "scoringStrategy.resources": "What counts, and how much.",
        "scoringStrategy.resources[].name": "Of the resource.",
        "scoringStrategy.resources[].weight": "1..100; 1 unless given.",
        "scoringStrategy.requestedToCapacityRatio.shape": "A curve; with that type only, and required there.",
        **{f"scoringStrategy.requestedToCapacityRatio.shape[].{name}": text for name, text in _SHAPE.items()},
    },
    "NodeResourcesBalancedAllocation": {
        "resources": "What counts.",
        "resources[].name": "Of the resource; once each.",
        "resources[].weight": "1, if it is given.",
    },
    "PodTopologySpread": {
        "defaultingType": "`System`: upstream's soft constraints over hosts and zones. `List`: those below, or none.",
        "defaultConstraints": "With `List`: constraints for pods that have none of their own.",
        "defaultConstraints[].maxSkew": "Required.",
        "defaultConstraints[].topologyKey": "Required.",
        "defaultConstraints[].whenUnsatisfiable": "`DoNotSchedule` or `ScheduleAnyway`; required.",
        "defaultConstraints[].minDomains": "Counts with `DoNotSchedule` only.",
        "defaultConstraints[].nodeAffinityPolicy": "`Honor` or `Ignore`.",
        "defaultConstraints[].nodeTaintsPolicy": "`Honor` or `Ignore`.",
        "defaultConstraints[].matchLabelKeys": "Labels whose values pods must share to count.",
        "defaultConstraints[].labelSelector": "Refused: it is deduced for each pod.",
    },
    "VolumeBinding": {
        "bindTimeoutSeconds": "A pod waits so long for its volumes; then the attempt ends. 0: it does not wait.",
        "shape": f"A curve over the room in use; with the gate `{CAPACITY_SCORING}` only.",
        **{f"shape[].{name}": text for name, text in _SHAPE.items()},
    },
    "DynamicResources": {
        "filterTimeout": "For the search of one node's devices; 0s: no limit. With `DRASchedulerFilterTimeout` only.",
        "bindingTimeout": "For binding conditions; at least 1s. With `DRADeviceBindingConditions` only.",
    },
    KubestowArgs.plugin: {
        "parity": "Every switch below, but for `victims`, does what kube-scheduler does; one that is given otherwise is a mistake.",
    },
}
GATES: Final[Mapping[str, str]] = {
    CAPACITY_SCORING: "VolumeBinding scores nodes by the room that is left for new volumes.",
    "VolumeLimitScaling": "Nodes without a CSI driver take no pods of it if its CSIDriver has `preventPodSchedulingIfMissing`.",
    "DynamicResourceAllocation": "Devices at all.",
    "DRAAdminAccess": "Requests with `adminAccess` see devices that are in use.",
    "DRAPrioritizedList": "`firstAvailable`: the first of several requests that can be met.",
    "DRAPartitionableDevices": "Shared counters: devices that are parts of others.",
    "DRADeviceTaints": "Taints in slices, tolerations in requests.",
    "DRADeviceTaintRules": "Taints by DeviceTaintRule objects, which are then watched.",
    "DRAConsumableCapacity": "Devices that several claims share by amounts; `distinctAttribute`.",
    "DRADeviceBindingConditions": "Devices that must be made ready before the pod is bound.",
    "DRAResourceClaimDeviceStatus": "Device status in claims, where those conditions stand.",
    "DRAExtendedResource": "Extended resources that device classes serve.",
    "DRASchedulerFilterTimeout": "`filterTimeout` of DynamicResources.",
    "DRAListTypeAttributes": "Attributes that are lists.",
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
}
"""What may stand beside `profiles`, to be told which of it changes nothing."""


def sections() -> str:
    """All tables of the document, each under its heading."""
    return "\n".join([_fields(), _plugins(), *(_arguments(args) for args in default_args().values()), _gates()])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown, with an empty line behind it."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(value: Any) -> str:
    """As a file would write it, in one line; nothing for None and for an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f'`"{value}"`' if value == _TRUE_IN_YAML else f"`{value}`" * bool(value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def ignored() -> frozenset[str]:
    """Fields that are accepted and have no effect."""
    return frozenset(parse(json.dumps(_EVERYTHING), source="all fields").ignored)


# -- sections ----------------------------------------------------------------------------------------------------------


def _fields() -> str:
    usual, nothing = _flat(to_document(default())), ignored()
    usual["profiles[].schedulerName"] = None  # of a profile that is written there is none
    rows = [
        (
            code(path),
            code(usual.get(path)) if path != "profiles" else "",
            f"{'*No effect.* ' * (path in nothing)}{text}",
        )
        for path, text in FIELDS.items()
    ]
    points = ", ".join(code(point) for point in (MULTI_POINT, *POINTS))
    later = " and ".join(code(point) for point in LATER_POINTS)
    return f"{_FIELDS_HEAD}{table(('field', 'default', ''), rows)}\n`<point>` is one of {points}; {later} may stand there with nothing in it.\n"


_FIELDS_HEAD: Final = """\
## Fields

What is not in this table is a mistake, and named with its path; so is a value of another type. What has *no effect* is accepted because kube-scheduler
accepts it; `check-config`, and a line at the start, list it.

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
    head = "## Default plugins\n\nIn this order, at each point that they have; kube-scheduler 1.36's but for those of pod groups.\n\n"
    return f"{head}{table(('plugin', 'weight', ''), rows)}\n## Plugin arguments\n"


def _arguments(args: KnownArgs) -> str:
    said = _FIELD.sub(_spelled, " ".join(inspect.cleandoc(type(args).__doc__ or "").split()))
    head = f"### {args.plugin}\n\n`{args.plugin}Args`. {said}\n\n".replace(
        "`KubestowArgs`.", "`KubestowArgs` of `kubestow.dev/v1alpha1`."
    )
    usual = _usual()[args.plugin]
    if isinstance(args, KubestowArgs):
        return head + table(("field", "default", "kube-scheduler", ""), _switches(usual))
    rows = ((code(field), code(usual.get(field)), text) for field, text in ARGUMENTS[args.plugin].items())
    return head + table(("field", "default", ""), rows)


def _spelled(field: re.Match[str]) -> str:
    """A field's name as files have it."""
    first, *rest = field[1].split("_")
    return code("".join([first, *(word.capitalize() for word in rest)]))


def _switches(usual: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    texts = _docstrings(KubestowArgs)
    for field in dataclasses.fields(KubestowArgs):
        spelled = SPELLED.get(field.name, field.name)
        upstream = UPSTREAM.get(field.name, None if field.name == "parity" else usual[spelled])
        text = texts.get(field.name) or ARGUMENTS[KubestowArgs.plugin][spelled]
        yield code(spelled), code(usual[spelled]), code([] if upstream == () else upstream), text


def _gates() -> str:
    rows = [
        (code(name), "on" if FEATURE_GATES[name] else "off", f"{text}{_terms(name)}") for name, text in GATES.items()
    ]
    return f"{_GATES_HEAD}{table(('gate', 'default', ''), rows)}"


_GATES_HEAD: Final = """\
## Feature gates

`--feature-gates=NAME=true,…`, not part of the document. Defaults are those of kube-scheduler 1.36. A gate that is not listed changes nothing here, and is named
in the log.

"""


def _terms(name: str) -> str:
    """What comes with a gate: that it cannot be set, or what has to be on for it."""
    if "locked" in _refusal({name: not FEATURE_GATES[name]}):
        return " Locked."
    needs = [
        code(other) for other in FEATURE_GATES if _refusal({name: True, other: False}).startswith(f"{name} is enabled")
    ]
    return f" Needs {', '.join(needs)}." if needs else ""


def _refusal(gates: Mapping[str, bool]) -> str:
    try:
        gates_on(gates)
    except ValueError as refused:
        return str(refused)
    return ""


# -- what the code says ------------------------------------------------------------------------------------------------


def _usual() -> dict[str, dict[str, Any]]:
    """Plugin → field → default, with the gate on that a curve needs."""
    (profile,) = to_document(default(feature_gates=GATES_ON | {CAPACITY_SCORING}))["profiles"]
    return {each["name"]: _flat(each["args"]) for each in profile["pluginConfig"]}


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Path → value; lists are values."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= {f"{name}.{rest}": deeper for rest, deeper in _flat(value).items()}
        else:
            found[name] = value
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the text below it."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for field, text in itertools.pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }

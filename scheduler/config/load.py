"""Read a configuration file into a Configuration, or raise all its mistakes with their paths; compute feature gates.

Accepts the documents that kube-scheduler v1.36 accepts (docs/spec/core.md §6), with two exceptions:
kube-scheduler's own lease is refused, and the name `default-scheduler` needs permission. A file without
`profiles` gets the default profile `kubestow`. Which plugins are built is unknown here: `plugins.resolve` needs the
registry. Feature gates are refused as kube-scheduler v1.36 refuses them (docs/spec/dra.md §6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from scheduler.config.args import KUBE_SCHEDULER_V1
from scheduler.config.document import DUPLICATE, Document, read_document
from scheduler.config.errors import ConfigError, ConfigErrors, Findings
from scheduler.config.fields import Fields, read, shown
from scheduler.config.read_profiles import ignored_placements, read_profiles
from scheduler.config.schema import INT64_MAX
from scheduler.config.sections import read_client_connection, read_extenders, read_leader_election
from scheduler.config.types import GATES_ON, Configuration
from scheduler.core.feature_gates import (
    BINDING_CONDITIONS,
    CHANGES,
    CLAIM_DEVICE_STATUS,
    CONSUMABLE,
    DEFAULT_VERSION,
    FRACTIONAL_RANGE,
    GATES,
    LOCKED_WITHOUT_EFFECT,
    REMOVED,
    TAINT_RULES,
    TAINTS,
    VERSIONS,
    minor_version,
)

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    BINDING_CONDITIONS: (CLAIM_DEVICE_STATUS,),
    TAINT_RULES: (TAINTS,),
    FRACTIONAL_RANGE: (CONSUMABLE,),
}
"""The gates that a gate requires. Locked gates are always on."""
_OLDEST_COMPATIBLE: Final = 3
"""How many minor versions before its own a component of Kubernetes can be compatible with."""


def gates_on(
    asked: Mapping[str, bool], version: str = DEFAULT_VERSION, *, min_compatibility_version: str = ""
) -> frozenset[str]:
    """Return the gates that are on after these settings, with the version's changes; unknown gates have no effect.

    `min_compatibility_version` is the oldest version of the other components; the default is the one before `version`.
    Raises ValueError with upstream's text for a gate that is locked, that the version removed, or whose required gate is off.
    The same holds for a `min_compatibility_version` that upstream's binary of `version` refuses.
    Upstream: staging/src/k8s.io/component-base/compatibility/version.go Validate
    """
    major, minor = minor_version(version) or (1, 0)
    oldest = minor_version(min_compatibility_version) or (major, minor - 1)
    if not (major, minor - _OLDEST_COMPATIBLE) <= oldest <= (major, minor):
        span = f"[{major}.{minor - _OLDEST_COMPATIBLE}, {version}]"
        raise ValueError(f"minCompatibilityVersion version {min_compatibility_version} is not between {span}")
    defaults = {gate: stages[version] for gate, stages in GATES.items()}
    for name, wanted in asked.items():
        if name in REMOVED[version]:
            raise ValueError(f"unrecognized feature gate: {name}")
        if name in LOCKED_WITHOUT_EFFECT[version] and not wanted:
            raise ValueError(f"cannot set feature gate {name} to false, feature is locked to true")
        if name in defaults and defaults[name].is_locked and wanted is not defaults[name].is_on:
            refused = f"cannot set feature gate {name} to {_go(wanted)}"
            raise ValueError(f"{refused}, feature is locked to {_go(defaults[name].is_on)}")
    compatible = {
        name
        for name, usually in defaults.items()
        if usually.on_from and (minor_version(usually.on_from) or oldest) <= oldest
    }
    usual = compatible | {name for name, usually in defaults.items() if usually.is_on}
    on = CHANGES[version] | {name for name in defaults if asked.get(name, name in usual)}
    for name, needed in _NEEDS.items():
        missing = [other for other in needed if other not in on]
        if name in on and missing:
            raise ValueError(f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]")
    return on


def _go(value: bool) -> str:
    return "true" if value else "false"


KIND = "KubeSchedulerConfiguration"


def default(
    leader_election: Mapping[str, Any] | None = None, *, feature_gates: AbstractSet[str] = GATES_ON
) -> Configuration:
    """Return the configuration without a file: one profile, `kubestow`, and leader election.

    The flags are those of `ReadOptions`.
    """
    fields = Fields({"leaderElection": leader_election}, "", Findings(feature_gates=_known_gates(feature_gates)))
    configuration = _configuration(fields, allow_default_scheduler=False)
    fields.findings.raise_any()
    return configuration


class ReadOptions(TypedDict, total=False):
    """How a configuration is read."""

    allow_default_scheduler: bool
    feature_gates: AbstractSet[str]
    """All gates that are on (`gates_on`); the default is GATES_ON."""
    leader_election: Mapping[str, Any]
    """Fields of that section that override the document before validation, as upstream's flags do."""


def load(path: str | Path, **options: Unpack[ReadOptions]) -> Configuration:
    """Read a file. Raises ConfigErrors, also if the file cannot be read."""
    return parse(read_text(path), source=str(path), **options)


def read_text(path: str | Path) -> str:
    """Return the text of a file. Raises ConfigErrors if the file cannot be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as unreadable:
        raise ConfigErrors([ConfigError(str(path), f"cannot be read: {unreadable.strerror}")]) from unreadable
    except UnicodeDecodeError as garbled:
        raise ConfigErrors([ConfigError(str(path), f"is not UTF-8: byte {garbled.start}")]) from garbled


def parse(text: str, *, source: str, **options: Unpack[ReadOptions]) -> Configuration:
    """Read YAML or JSON text. `source` names it in mistakes without a path.

    Raises ConfigErrors with every mistake in document order; a syntax error or a wrong version is raised alone.
    """
    configuration, findings = examine(text, source=source, **options)
    findings.raise_any()
    return configuration


def examine(text: str, *, source: str, **options: Unpack[ReadOptions]) -> tuple[Configuration, Findings]:
    """Like `parse`, but return the mistakes next to the configuration, in which defaults replace wrong values.

    Raises ConfigErrors for a syntax error and for a wrong version.

    Upstream: pkg/scheduler/apis/config/validation/validation.go ValidateKubeSchedulerConfiguration
    """
    try:
        document = read_document(text)
    except ConfigErrors as broken:
        raise ConfigErrors([_named(error, source) for error in broken.errors]) from broken
    findings = Findings(document.lines, feature_gates=_known_gates(options.get("feature_gates", GATES_ON)))
    try:
        _check_version(document.value, source=source)
    except ConfigErrors as other:
        raise ConfigErrors(_with_mistakes(document, other.errors, source)) from other
    with Fields(_overlaid(document.value, options.get("leader_election", {})), "", findings) as fields:
        fields.raw("apiVersion")
        fields.raw("kind")
        configuration = _configuration(fields, allow_default_scheduler=options.get("allow_default_scheduler", False))
    findings.errors = _with_mistakes(document, findings.errors, source)
    return configuration, findings


def _with_mistakes(document: Document, errors: Sequence[ConfigError], source: str) -> list[ConfigError]:
    """Return the document's own mistakes and `errors`, without those that follow from a refused value."""
    refused = {path or source for path, message in document.mistakes if not message.startswith(DUPLICATE)}
    findings = Findings(document.lines)
    for path, message in document.mistakes:
        findings.error(path, message)
    follow = [error for error in errors if error.path not in refused]
    return [_named(error, source) for error in (*findings.errors, *follow)]


def _known_gates(feature_gates: AbstractSet[str]) -> frozenset[str]:
    return frozenset(feature_gates).intersection(GATES.keys() | CHANGES[VERSIONS[-1]])


def _overlaid(document: dict[str, Any], leader_election: Mapping[str, Any]) -> dict[str, Any]:
    section = document.get("leaderElection") or {}
    if not leader_election or not isinstance(section, dict):
        return document
    return document | {"leaderElection": section | dict(leader_election)}


def _named(error: ConfigError, source: str) -> ConfigError:
    return error if error.path else ConfigError(source, error.message, line=error.line)


def _check_version(value: Any, *, source: str) -> None:
    """Raise ConfigErrors for another version or kind. Its fields differ, so further mistakes would only distract."""
    if not isinstance(value, dict):
        raise ConfigErrors([ConfigError(source, f"must be a {KIND}, got {shown(value)}")])
    errors = []
    for field, wanted in (("apiVersion", KUBE_SCHEDULER_V1), ("kind", KIND)):
        given = value.get(field)
        if given is None:
            errors.append(ConfigError(field, f"is required: {wanted}"))
        elif given != wanted:
            errors.append(ConfigError(field, f"must be {wanted}, got {shown(given)}"))
    if errors:
        raise ConfigErrors(errors)


def _configuration(fields: Fields, *, allow_default_scheduler: bool) -> Configuration:
    initial_s = fields.integer("podInitialBackoffSeconds", 1, high=INT64_MAX)
    longest_s = fields.integer("podMaxBackoffSeconds", 10, high=INT64_MAX)
    if initial_s <= 0:
        fields.invalid("podInitialBackoffSeconds", initial_s, "must be greater than 0")
    if longest_s < initial_s:
        why = "must be greater than or equal to PodInitialBackoffSeconds"
        fields.invalid("podMaxBackoffSeconds", longest_s, why)
    fields.boolean("enableContentionProfiling", True)
    ignored_placements(fields)
    for name in ("enableContentionProfiling", "enableProfiling", "parallelism"):
        fields.no_effect(name)
    return read(
        Configuration,
        fields,
        client_connection=lambda: read_client_connection(fields.child("clientConnection")),
        leader_election=lambda: read_leader_election(fields.child("leaderElection")),
        pod_initial_backoff_s=lambda: float(initial_s),
        pod_max_backoff_s=lambda: float(longest_s),
        profiles=lambda: read_profiles(fields, allow_default_scheduler=allow_default_scheduler),
        extenders=lambda: read_extenders(fields),
        feature_gates=lambda: frozenset(fields.findings.feature_gates),
        ignored=lambda: tuple(sorted(fields.findings.ignored)),
    )

"""Read the sections of a configuration that are not profiles: client, leader election, extenders (§6.1, §6.5)."""

from __future__ import annotations

from typing import Final

from scheduler.api.meta import dns_label, http_address, subdomain
from scheduler.config.document import format_duration
from scheduler.config.fields import Fields, read
from scheduler.config.types import ClientConnection, ExtenderConfig, ExtenderTls, LeaderElection, ManagedResource

_JITTER: Final = 1.2
"""Upstream's leader election waits up to this much longer than the retry period."""


def read_client_connection(fields: Fields) -> ClientConnection:
    """Read the client section. A qps or burst of 0 means the default, as upstream."""
    with fields:
        for name in ("acceptContentTypes", "contentType"):  # only JSON is used
            fields.text(name)
            fields.no_effect(name)
        return read(ClientConnection, fields)


def read_leader_election(fields: Fields) -> LeaderElection:
    """Read leader election.

    It is on by default. Empty strings and zeros mean the default, as upstream. It is fully checked only when on.
    """
    with fields:
        election = read(LeaderElection, fields)
        if (election.resource_name, election.resource_namespace) == ("kube-scheduler", "kube-system"):
            fields.error("resourceName", "kube-scheduler in kube-system is the cluster's own scheduler's lease")
        if election.leader_elect:
            _check_election(election, fields)
        return election


def _check_election(election: LeaderElection, fields: Fields) -> None:
    if election.resource_lock != "leases":
        fields.invalid("resourceLock", election.resource_lock, 'resourceLock value must be "leases"')
    for name, value, complaints in (
        ("resourceName", election.resource_name, subdomain),
        ("resourceNamespace", election.resource_namespace, dns_label),
    ):
        fields.judge(name, value, complaints)
    times = {
        "leaseDuration": election.lease_duration_s,
        "renewDeadline": election.renew_deadline_s,
        "retryPeriod": election.retry_period_s,
    }
    for name, time_s in times.items():
        if time_s < 0:
            fields.invalid(name, format_duration(time_s), "must be greater than zero")
    if election.lease_duration_s <= election.renew_deadline_s:
        # Upstream shows the value of renewDeadline, which is not the one in the file.
        fields.invalid(
            "leaseDuration", format_duration(election.lease_duration_s), "must be greater than `RenewDeadline`"
        )
    if election.renew_deadline_s <= election.retry_period_s * _JITTER:
        renewal = format_duration(election.renew_deadline_s)
        fields.invalid("renewDeadline", renewal, f"must be greater than {_JITTER} times retryPeriod")


def read_extenders(fields: Fields) -> tuple[ExtenderConfig, ...]:
    """Read extenders in the order of the file. They are shared by all profiles.

    Upstream: pkg/scheduler/apis/config/validation/validation.go validateExtenders
    """
    extenders = []
    managed: set[str] = set()
    for item in fields.children("extenders"):
        with item:
            extender = _extender(item)
        if extender.prioritize_verb and extender.weight <= 0:
            item.invalid("weight", extender.weight, "must have a positive weight applied to it")
        for at, resource in enumerate(extender.managed_resources):
            if resource.name in managed:
                item.invalid(f"managedResources[{at}].name", resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
        extenders.append(extender)
    if (binders := sum(bool(extender.bind_verb) for extender in extenders)) > 1:
        fields.invalid(
            "extenders", f"found {binders} extenders implementing bind", "only one extender can implement bind"
        )
    return tuple(extenders)


def _extender(fields: Fields) -> ExtenderConfig:
    resources = []
    for item in fields.children("managedResources"):
        with item:
            resources.append(read(ManagedResource, item))
    timeout_s = fields.seconds("httpTimeout", 0.0)
    if timeout_s < 0:
        fields.invalid("httpTimeout", format_duration(timeout_s), "must be non-negative")
    url_prefix = fields.text("urlPrefix")
    try:
        http_address(url_prefix)
    except ValueError as why:  # kube-scheduler would start, and fail at each pod
        fields.invalid("urlPrefix", url_prefix, str(why))
    return read(
        ExtenderConfig,
        fields,
        url_prefix=lambda: url_prefix,
        tls=lambda: _tls(fields),
        http_timeout_s=lambda: timeout_s or ExtenderConfig().http_timeout_s,
        managed_resources=lambda: tuple(resources),
    )


def _tls(fields: Fields) -> ExtenderTls | None:
    given = fields.has("tlsConfig")
    with fields.child("tlsConfig") as tls:
        found = read(ExtenderTls, tls)
        if found.insecure and (found.ca_file or found.ca_data):
            tls.error("insecure", "specifying a root certificates file with the insecure flag is not allowed")
    return found if given else None

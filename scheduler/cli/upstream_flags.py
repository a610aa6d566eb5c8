"""kube-scheduler's flags that `kubestow run` does not act on: accepted without effect, or refused with the reason.

A flag is accepted without effect where ignoring it is harmless: the daemon logs one line for each. It is refused where the
user would rely on something that does not happen. The flags that have their meaning are in `scheduler.cli.flags`.

Upstream: cmd/kube-scheduler/app/options/options.go Options
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class UpstreamFlag:
    """One flag. Without a `metavar` it is a boolean, which needs no value."""

    name: str
    metavar: str
    why: str


_NO_PPROF: Final = "the daemon has no /debug/pprof pages"
_NO_HTTP2: Final = "the daemon serves HTTP/1.1 only"
_NO_BUFFER: Final = "log lines are written at once, to standard error"
_NO_STREAMS: Final = "all log lines go to standard error"
_NO_LIMIT: Final = "all metrics are shown with all their labels"

WITHOUT_EFFECT: Final = (
    UpstreamFlag("permit-address-sharing", "", "SO_REUSEADDR is always set"),
    UpstreamFlag("disable-http2-serving", "", _NO_HTTP2),
    UpstreamFlag("http2-max-streams-per-connection", "N", _NO_HTTP2),
    UpstreamFlag("profiling", "", _NO_PPROF),
    UpstreamFlag("contention-profiling", "", _NO_PPROF),
    UpstreamFlag("kube-api-content-type", "TYPE", "requests are sent as JSON"),
    UpstreamFlag("min-compatibility-version", "VERSION", "it restricts --emulated-version only"),
    UpstreamFlag("show-hidden-metrics-for-version", "VERSION", "no metric is hidden"),
    UpstreamFlag("disabled-metrics", "NAME,...", _NO_LIMIT),
    UpstreamFlag("allow-metric-labels", "METRIC,LABEL=VALUE,...", _NO_LIMIT),
    UpstreamFlag("allow-metric-labels-manifest", "FILE", _NO_LIMIT),
    UpstreamFlag("log-flush-frequency", "DURATION", _NO_BUFFER),
    UpstreamFlag("log-json-info-buffer-size", "SIZE", _NO_BUFFER),
    UpstreamFlag("log-text-info-buffer-size", "SIZE", _NO_BUFFER),
    UpstreamFlag("log-json-split-stream", "", _NO_STREAMS),
    UpstreamFlag("log-text-split-stream", "", _NO_STREAMS),
    UpstreamFlag("vmodule", "PATTERN=N,...", "the log level is the same for all modules: use --v"),
)
"""Accepted; each logs one line at start."""

_NO_PROXY: Final = (
    "Kubestow does not authenticate callers by the headers of a front proxy; use tokens or client certificates"
)

REFUSED: Final = (
    *(
        UpstreamFlag(f"requestheader-{name}", "VALUE", _NO_PROXY)
        for name in (
            "allowed-names",
            "client-ca-file",
            "extra-headers-prefix",
            "group-headers",
            "uid-headers",
            "username-headers",
        )
    ),
    UpstreamFlag(
        "tls-curve-preferences",
        "ID,...",
        "Python's TLS library cannot restrict the key exchange; use --tls-min-version and --tls-cipher-suites",
    ),
    UpstreamFlag(
        "tls-sni-cert-key",
        "CERT,KEY",
        "Kubestow serves one certificate; put all host names into that of --tls-cert-file",
    ),
)
"""Refused as wrong usage, with the reason."""


def add_upstream_flags(run: argparse.ArgumentParser) -> None:
    """Add the flags of both tables. The names of those without effect are collected in `without_effect`."""
    run.set_defaults(without_effect=())
    add = run.add_argument_group("kube-scheduler's flags without effect", "Each logs one line at start.").add_argument
    for flag in WITHOUT_EFFECT:
        add(f"--{flag.name}", action=_WithoutEffect, help=flag.why, **_value(flag))
    for flag in REFUSED:
        run.add_argument(f"--{flag.name}", action=_Refuse, const=flag.why, help=argparse.SUPPRESS, **_value(flag))


def why_without_effect(name: str) -> str:
    """Return the reason that the log line of a flag gives; `name` without dashes."""
    return next(flag.why for flag in WITHOUT_EFFECT if flag.name == name)


def _value(flag: UpstreamFlag) -> dict[str, Any]:
    return {"metavar": flag.metavar} if flag.metavar else {"nargs": "?", "metavar": "BOOL"}


class _WithoutEffect(argparse.Action):
    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name = self.option_strings[0].removeprefix("--")
        namespace.without_effect = (*dict.fromkeys((*namespace.without_effect, name)),)


class _Refuse(argparse.Action):
    """`const` is the reason."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        raise argparse.ArgumentError(self, f"refused: {self.const}")

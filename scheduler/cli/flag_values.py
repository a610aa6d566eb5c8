"""The values of flags: parsers that argparse calls, with the spellings that Go programs accept."""

from __future__ import annotations

import argparse
import ipaddress
import math
from typing import Any

from scheduler.config.types import CIPHER_SUITES, EVERYWHERE
from scheduler.core.feature_gates import VERSIONS


def boolean(text: str) -> bool:
    """Parse what Go's strconv.ParseBool accepts."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")


def duration(text: str) -> float:
    """Parse a Go duration or plain seconds."""
    from scheduler.config.document import parse_duration_s

    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None
    if seconds < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, got {text!r}")
    return seconds


def rate(text: str) -> float:
    """Parse requests per second; negative means unlimited."""
    try:
        per_second = float(text)
    except ValueError:
        per_second = math.nan
    if not math.isfinite(per_second):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return per_second


def burst(text: str) -> int:
    """Parse a number of requests."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number, 0 or above, got {text!r}")
    return int(text)


def positive_duration(text: str) -> str:
    """Return a positive duration in Go's form."""
    from scheduler.config.document import format_duration

    seconds = duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("must be greater than zero")
    return format_duration(seconds)


def non_empty(text: str) -> str:
    """Return the text; the value of an unset shell variable is refused."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def port(text: str) -> int:
    """Parse a port; 0 means none."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be 0..65535, got {text!r}")
    return int(text)


def address(text: str) -> str:
    """Parse an IP address; an empty text means all addresses, as in kube-scheduler."""
    try:
        return str(ipaddress.ip_address(text or EVERYWHERE))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an IP address, got {text!r}") from None


def paths(text: str) -> tuple[str, ...]:
    """Parse paths as kube-scheduler does: a slash before each, a * at the end only."""
    found = tuple(f"/{path.removeprefix('/')}" for path in text.split(",")) if text else ()
    for path in found:
        if "*" in path[:-1]:
            raise argparse.ArgumentTypeError(f"only trailing * allowed in {path!r}")
    return found


def cipher_suites(text: str) -> tuple[str, ...]:
    """Parse Go's names of cipher suites."""
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in CIPHER_SUITES:
            raise argparse.ArgumentTypeError(f"{name} is not accepted, expected some of {', '.join(CIPHER_SUITES)}")
    return names


def feature_gates(text: str) -> dict[str, bool]:
    """Parse `NAME=BOOL,...`; the component `kube:` before a name may be left out, as in kube-scheduler."""
    gates = {}
    for part in filter(None, text.split(",")):
        name, found, value = part.partition("=")
        if not found:
            raise argparse.ArgumentTypeError(f"must be NAME=true or NAME=false, got {part!r}")
        component, _, gate = name.strip().rpartition(":")
        if component not in {"", "kube"}:
            raise argparse.ArgumentTypeError(f"component not registered: {component}")
        gates[gate] = boolean(value.strip())
    return gates


def emulated_version(text: str) -> str:
    """Parse a version of kube-scheduler; the component `kube=` before it may be left out, as in kube-scheduler."""
    found = {part.strip().removeprefix("kube=") for part in text.split(",")}
    if len(found) != 1 or not found.issubset(VERSIONS):
        told = " or ".join(VERSIONS)
        raise argparse.ArgumentTypeError(
            f"the behaviour is kube-scheduler's of {told}: expected one of them, got {text!r}"
        )
    return found.pop()


class MergeGates(argparse.Action):
    """Merge repeated flags; the last value of a gate wins."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, {**getattr(namespace, self.dest), **values})


def validation_level(text: str) -> str:
    """Parse a level of `--validate`. As in kubectl true stands for strict, and false for ignore."""
    if text in {"strict", "warn", "ignore"}:
        return text
    try:
        return "strict" if boolean(text) else "ignore"
    except argparse.ArgumentTypeError:
        message = f"must be strict, warn or ignore, got {text!r}; the value follows a =, as in --validate=warn"
        raise argparse.ArgumentTypeError(message) from None

"""Times as the API writes them, from seconds since the epoch. Always UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds(wall_s: float) -> str:
    """metav1.Time: `2026-01-02T03:04:05Z`."""
    return datetime.fromtimestamp(int(wall_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(wall_s: float) -> str:
    """metav1.MicroTime: `2026-01-02T03:04:05.000006Z`."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

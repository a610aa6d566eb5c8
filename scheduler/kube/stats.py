"""What reflectors and recorder count about themselves. Plain numbers: /metrics and /readyz read them when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler.core.clock import Clock

DOWN_S: Final = 15.0
"""A kind without a complete list and without a watch for so long is reported."""


@dataclass(slots=True)
class ReflectorStats:
    """What the mirror counts about itself; read by /metrics and /readyz. `events` by watch type, `relists` by cause."""

    clock: Clock
    objects: int = 0
    events: dict[str, int] = field(default_factory=dict)
    relists: dict[str, int] = field(default_factory=dict)
    synthesised_deletes: int = 0
    decode_errors: int = 0
    last_byte_at: float = 0.0
    complete_at: float = 0.0
    """When the mirror was last known to be complete: with a complete list, or at the end of a watch."""
    is_watching: bool = False
    """A watch is open that follows a complete list."""
    failures: int = 0
    """Failed lists and watches since the last watch was open."""
    failures_total: int = 0
    synced: bool = False
    denied: str = ""
    """Names kind and verb while a permission is missing or credentials are refused."""
    absent: bool = False
    """The server answered that it does not serve the kind."""
    last_error: str = ""

    @property
    def silent_s(self) -> float:
        """Seconds since the server last sent a byte."""
        return self.clock.now() - self.last_byte_at

    @property
    def down_s(self) -> float:
        """Seconds without a complete list and without a watch; 0 while a watch is open."""
        return 0.0 if self.is_watching else self.clock.now() - self.complete_at

    @property
    def is_down(self) -> bool:
        """The mirror has stood still for so long that operators are to know."""
        return self.down_s >= DOWN_S

    @property
    def why_down(self) -> str:
        """For /readyz: how long, how often it failed, and how last."""
        why = f", last: {self.last_error}" if self.last_error else ""
        return f"no complete list and no watch for {self.down_s:.0f} s; failures: {self.failures}{why}"

    def completed(self, *, is_watching: bool) -> None:
        """The list is complete, or the watch that follows it was opened."""
        self.complete_at = self.clock.now()
        self.is_watching = is_watching
        if is_watching:
            self.failures = 0

    def watch_ended(self) -> None:
        """From here on the mirror ages."""
        if self.is_watching:
            self.completed(is_watching=False)

    def failed(self) -> None:
        """A list or a watch failed, or a watch was cut."""
        self.failures += 1
        self.failures_total += 1


@dataclass(slots=True)
class RecorderStats:
    """Read by /metrics. `dropped`: pushed out of a full queue; `failed`: refused, or given up after retries."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0
    queued: int = 0

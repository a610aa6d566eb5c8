"""What reflectors and recorder count about themselves. Plain numbers: /metrics and /readyz read them when asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.core.clock import Clock


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


@dataclass(slots=True)
class RecorderStats:
    """Read by /metrics. `dropped`: pushed out of a full queue; `failed`: refused, or given up after retries."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0
    queued: int = 0

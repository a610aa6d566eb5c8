"""What is counted of the shell, and of profiles that change while the daemon runs."""

from __future__ import annotations

from typing import Final

from scheduler.obs.instruments import Maker

RESULTS: Final = ("applied", "refused", "removed")


class ShellInstruments:
    """Implements the `ReloadMetrics` port, and serves the shell itself."""

    def __init__(self, make: Maker) -> None:
        self._reloads = make.counter(
            "kubestow_profile_reloads",
            "Changes of profiles by SchedulerProfile objects: applied, refused, or removed (the file counts again).",
            "result",
        )
        for result in RESULTS:
            self._reloads[result,].inc(0)
        self._generations = make.gauge(
            "kubestow_profile_generation",
            "Generation of the SchedulerProfile that decides for a profile; 0: what the configuration file says.",
            "profile",
        )
        self._up = make.plain_gauge(
            "kubestow_shell_up",
            "1 while SchedulerProfile objects are watched; 0: there are none to watch, or they are looked at once a minute.",
        )
        self._restarts = make.plain_counter(
            "kubestow_shell_restarts", "Times that the shell ended by itself and was started anew."
        )

    def reload(self, result: str) -> None:
        """As the port."""
        self._reloads[result,].inc()

    def generation(self, profile: str, generation: int) -> None:
        """As the port."""
        self._generations[profile,].set(generation)

    def up(self, is_up: bool) -> None:
        """The shell runs, or does not."""
        self._up.set(is_up)

    def restarted(self) -> None:
        """The shell ended by itself."""
        self._restarts.inc()

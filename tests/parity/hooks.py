"""What the replay reads from a running daemon while it decides, and the one thing that it keeps the daemon from."""

from scheduler.api.podinfo import PodInfo
from scheduler.cycle import Cycle
from scheduler.daemon.app import Daemon
from scheduler.framework.interface import CycleState, Scored
from scheduler.framework.runtime import Runner
from scheduler.queueing.types import QueuedPodInfo
from tests.parity.verdict import Scores


class Hooks:
    """One per daemon, however many profiles are used."""

    def __init__(self, daemon: Daemon) -> None:
        self.scores: Scores = {}
        """The scores of the newest pod whose nodes were scored."""
        self.tries_early = True
        """Whether an idle queue tries pods again before their back-off is over."""
        self._nodes = daemon.decisions.cluster.nodes
        self.cycle: Cycle = daemon.decisions.cycle
        self._choose = self.cycle._choose
        self.cycle._choose = self._read_scores  # type: ignore[method-assign]
        backoff = daemon.decisions.queue._places.backoff
        self._first_rejected = backoff.first_rejected
        backoff.first_rejected = self._first_to_try_early  # type: ignore[method-assign]

    def _read_scores(self, runner: Runner, state: CycleState, pod: PodInfo, scored: Scored) -> int:
        names = {int(slot): self._nodes.name(int(slot)) for slot in scored.slots}
        self.scores = {
            plugin: {name: int(column[slot]) for slot, name in names.items()} for plugin, column in scored.parts.items()
        }
        return self._choose(runner, state, pod, scored)

    def _first_to_try_early(self) -> QueuedPodInfo | None:
        return self._first_rejected() if self.tries_early else None

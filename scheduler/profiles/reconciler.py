"""Change profiles while the daemon runs.

New profiles are built next to those in force, and replace them between two attempts. The requested profiles come from
`objects` through the inbox, so no attempt is running here. A request that cannot be met changes nothing and has a
reason. Attempts and bindings keep the runner with which they began (docs/adr/0011).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import structlog

from scheduler.config.args import KubestowArgs
from scheduler.config.dump import changes
from scheduler.config.errors import ConfigErrors
from scheduler.config.plugins import check_common_queue_sort
from scheduler.config.read_profiles import read_changes
from scheduler.config.types import Configuration, KubeSchedulerProfile as ProfileConfig
from scheduler.core.terminal import counted
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FrameworkRunner
from scheduler.metrics.instruments import OperatorInstruments
from scheduler.queue import QueueProfile

_log = structlog.get_logger(__name__)

IN_FORCE: Final = "InForce"
INVALID: Final = "Invalid"
FAILED: Final = "Failed"
WAITING: Final = "WaitingForKinds"
PATH: Final = "spec"
"""Path of the request in its object, in front of the path of each mistake."""
_MISTAKES_SHOWN: Final = 10
_MISTAKE_MAX: Final = 400
"""Characters of a message for the log, /readyz and a status; a spec may have a megabyte of mistakes."""

Build: TypeAlias = Callable[[ProfileConfig], Profile]


@dataclass(frozen=True, slots=True)
class RequestedProfile:
    """The request of one object: a profile without its name. Another uid or generation is another request."""

    uid: str
    generation: int
    spec: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """The result of a request."""

    request: RequestedProfile
    reason: str
    message: str
    in_force: int = 0
    """The generation of this object that is in force; 0 if none."""
    changes: str = ""
    """The changes against the configuration file."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The profile in force for one scheduler name. `wish` is None if it is that of the file."""

    config: ProfileConfig
    profile: Profile
    request: RequestedProfile | None = None


@dataclass(slots=True)
class ProfileUsers:
    """The users of the profiles in force. Every part reads `profiles` and `runners`; only this module changes them."""

    profiles: dict[str, Profile]
    runners: dict[str, FrameworkRunner]
    runner: Callable[[Profile], FrameworkRunner]
    adopt: Callable[[Mapping[str, QueueProfile]], None]
    """Sets the profiles of the queue."""
    clears: Callable[[tuple[str, ...]], None]
    """Sets the profiles that clear stale node selections of volumes."""
    shares_pools: Callable[[str], None]
    """Sets how storage classes share pools: `storagePoolSharing`."""


class ProfileReconciler:
    """The profiles in force. Only the scheduling loop changes them, through the inbox."""

    def __init__(
        self, config: Configuration, build: Build, parts: ProfileUsers, *, metrics: OperatorInstruments
    ) -> None:
        self._config = config
        self._build = build
        self._parts = parts
        self._metrics = metrics
        self.missing: Callable[[Profile], tuple[str, ...]] = lambda _profile: ()
        """Returns the kinds that a profile reads and that are not synced.

        The callee starts their informers and calls `again`.
        """
        self._file = {
            profile.scheduler_name: _Held(profile, parts.profiles[profile.scheduler_name])
            for profile in config.profiles
        }
        self._held = dict(self._file)
        self._requests: Mapping[str, RequestedProfile] = {}
        self._refused: dict[str, ProfileVerdict] = {}
        self.verdicts: Mapping[str, ProfileVerdict] = {}
        """The results by scheduler name."""
        self.on_verdict: Callable[[], None] = lambda: None
        """Called when results may have changed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the plugins have changed."""
        for name in self._file:
            metrics.generation(name, 0)

    @property
    def configuration(self) -> Configuration:
        """Return the configuration in force."""
        return dataclasses.replace(
            self._config, profiles=tuple(self._held[profile.scheduler_name].config for profile in self._config.profiles)
        )

    def remarks(self) -> Iterable[str]:
        """Return a line for each request that is not in force."""
        for name, verdict in self.verdicts.items():
            if verdict.reason != IN_FORCE:
                yield f"SchedulerProfile {name} is not in force: {verdict.message}"
        for name, held in self._held.items():
            if held.request is not None and name not in self._requests:
                yield f"SchedulerProfile {name} is gone and still in force: {self._refused[name].message}"

    # -- wishes ----------------------------------------------------------------------------------------------------------

    def reconcile(self, requests: Mapping[str, RequestedProfile]) -> None:
        """Apply these requests, which are all that exist, without those of other schedulers. Call through the inbox."""
        self._requests = {name: request for name, request in requests.items() if name in self._file}
        self.again()

    def again(self) -> None:
        """Try requests again that could not be met. Call through the inbox."""
        before, self._refused = self._refused, {}
        candidates: dict[str, _Held] = {}
        for name, file in self._file.items():
            request = self._requests.get(name)
            if request == self._held[name].request:
                continue
            held = file if request is None else self._met(name, request)
            if held is not None:
                candidates[name] = held
        self._keep_sorting_alike(candidates)
        self._put_in_force(candidates)
        for name, verdict in self._refused.items():
            if before.get(name) != verdict:
                if verdict.reason != WAITING:
                    self._metrics.reload("refused")
                _log.warning("profile not changed", profile=name, reason=verdict.reason, message=verdict.message)
        self.verdicts = {name: self._verdict(name, request) for name, request in self._requests.items()}
        self.on_verdict()

    def _met(self, name: str, request: RequestedProfile) -> _Held | None:
        """Return the new profile; None if the request cannot be met, and then the reason is recorded."""
        try:
            config = read_changes(
                request.spec, self._file[name].config, path=PATH, feature_gates=self._config.feature_gates
            )
            same = next((h for h in (self._held[name], self._file[name]) if h.config == config), None)
            profile = self._build(config) if same is None else same.profile
            missing = self.missing(profile)
        except ConfigErrors as wrong:
            self._refuse(name, request, INVALID, _mistakes(wrong))
            return None
        except Exception as error:  # noqa: BLE001 (a plugin that cannot be made must not affect other profiles)
            _log.exception("profile could not be made", profile=name)
            self._refuse(name, request, FAILED, f"the plugins could not be made: {cut(repr(error), _MISTAKE_MAX)}")
            return None
        if missing:
            self._refuse(
                name, request, WAITING, f"kinds that the plugins read are not mirrored yet: {', '.join(missing)}"
            )
            return None
        return _Held(config, profile, request)

    def _keep_sorting_alike(self, candidates: dict[str, _Held]) -> None:
        """Refuse requests that sort the queue differently than the rest: all profiles share one queue."""
        after = self._held | candidates
        try:
            check_common_queue_sort([(held.config, held.profile.resolved) for held in after.values()])
        except ConfigErrors as wrong:
            for name in [name for name in candidates if _sorting(candidates[name]) != _sorting(self._held[name])]:
                request = candidates.pop(name).request or self._held[name].request
                assert request is not None
                self._refuse(name, request, INVALID, cut(str(wrong.errors[0]), _MISTAKE_MAX))

    def _refuse(self, name: str, request: RequestedProfile, reason: str, message: str) -> None:
        self._refused[name] = ProfileVerdict(request, reason, message)

    # -- what is in force ------------------------------------------------------------------------------------------------

    def _put_in_force(self, candidates: dict[str, _Held]) -> None:
        changed = {
            name: held.profile for name, held in candidates.items() if held.profile is not self._held[name].profile
        }
        if changed:
            parts = self._parts
            try:  # all at once, because they share one queue; a failure changes nothing
                runners = {name: parts.runner(profile) for name, profile in changed.items()}
                parts.adopt({name: queue_profile(profile) for name, profile in changed.items()})
                parts.profiles.update(changed)
                parts.runners.update(runners)
            except Exception as error:  # noqa: BLE001 (a plugin that cannot sort some pod must cost none its place)
                _log.exception("profiles could not be put in force", profiles=list(changed))
                for name in changed:
                    request = candidates.pop(name).request or self._held[name].request
                    assert request is not None
                    self._refuse(name, request, FAILED, f"could not be put in force: {cut(repr(error), _MISTAKE_MAX)}")
                changed = {}
        self._held.update(candidates)
        for name, held in candidates.items():
            self._record(name, held)
        if changed:
            self._parts.clears(clearing(self.configuration))
            self._parts.shares_pools(pool_sharing(self.configuration))
            self.on_change()

    def _record(self, name: str, held: _Held) -> None:
        self._metrics.reload("removed" if held.request is None else "applied")
        self._metrics.generation(name, held.request.generation if held.request is not None else 0)
        if held.request is None:
            _log.info("profile is as in the file again", profile=name)
        else:
            changed = self._changes(held) or "nothing"
            _log.info("profile changed", profile=name, generation=held.request.generation, changes=changed)

    def _verdict(self, name: str, request: RequestedProfile) -> ProfileVerdict:
        held = self._held[name]
        deciding = held.request.generation if held.request is not None and held.request.uid == request.uid else 0
        changed = self._changes(held)
        refused = self._refused.get(name)
        if refused is not None:
            still = f"generation {deciding} stays" if deciding else "what was in force stays"
            return dataclasses.replace(
                refused, message=f"{refused.message} ({still} in force)", in_force=deciding, changes=changed
            )
        return ProfileVerdict(request, IN_FORCE, changed or "the same as in the configuration file", deciding, changed)

    def _changes(self, held: _Held) -> str:
        file = self._file[held.config.scheduler_name]
        return changes((file.config, file.profile.resolved), (held.config, held.profile.resolved))


def queue_profile(profile: Profile) -> QueueProfile:
    """Return the part of the profile that the queue needs."""
    return QueueProfile(profile.pre_enqueue, profile.queue_sort.sort_key, profile.hints)


def clearing(config: Configuration) -> tuple[str, ...]:
    """Return the profiles that clear stale node selections."""
    return tuple(profile.scheduler_name for profile in config.profiles if not profile.args_for(KubestowArgs).parity)


def pool_sharing(config: Configuration) -> str:
    """Return the value of `storagePoolSharing` that withholds most: all profiles share one ledger of capacity."""
    modes = {
        args.storage_pool_sharing
        for args in (profile.args_for(KubestowArgs) for profile in config.profiles)
        if args.storage_capacity_reservation != "none"
    }
    return next((mode for mode in ("all", "learned") if mode in modes), "none")


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _mistakes(wrong: ConfigErrors) -> str:
    """Return the first mistakes, and the number of the rest."""
    shown = "; ".join(cut(str(error), _MISTAKE_MAX) for error in wrong.errors[:_MISTAKES_SHOWN])
    more = len(wrong.errors) - _MISTAKES_SHOWN
    return f"{shown}; and {counted(more, 'more mistake')}" if more > 0 else shown


def _sorting(held: _Held) -> tuple[str, object]:
    name = held.profile.resolved.points["queueSort"][0].name
    return name, held.config.args.get(name)

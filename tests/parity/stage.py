"""The pods, PVs and claims, also those of devices, of a scenario on some API server, put up again whenever a trial has left its mark on them."""

from tests.parity.api import VOLUMES, put_pods, wipe
from tests.parity.deviceclaims import CLAIM, put_device_claims
from tests.parity.scenario import Scenario
from tests.parity.side import Side
from tests.parity.verdict import Verdict
from tests.parity.volumes import put_volumes


class Stage:
    """`try_pod` finds them as the scenario has them, whatever was tried before.

    Nodes and all else that no trial changes must be there already.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._is_fresh_for = ""
        """The scheduler whose pods wait; "" if the pods have to be put up again."""

    async def try_pod(self, side: Side, name: str) -> Verdict:
        """The verdict of this scheduler on the tried pod of this name."""
        await self.set_for(side)
        self._is_fresh_for = ""
        told = await side.try_pod(self._scenario.asked[name], self._scenario.profile, among=self._scenario)
        if not (told.preempts or told.writes):
            self._is_fresh_for = self._waiting_for(side)
        return told

    async def set_for(self, side: Side) -> None:
        """The pods are there and the scheduler is ready for the next pod."""
        waiting_for = self._waiting_for(side)
        is_fresh = self._is_fresh_for == waiting_for or (self._is_fresh_for and not self._scenario.waiting)
        if not is_fresh:
            claims = (CLAIM,) if self._scenario.devices else ()
            await wipe(side.api, ("Pod", *(VOLUMES if self._scenario.storage else ()), *claims))
            await put_pods(side.api, self._scenario, waiting_for=waiting_for)
            await put_volumes(side.api, self._scenario)
            await put_device_claims(side.api, self._scenario)
            self._is_fresh_for = waiting_for
        await side.see(self._scenario)

    def _waiting_for(self, side: Side) -> str:
        return f"{side.prefix}-{self._scenario.profile}"

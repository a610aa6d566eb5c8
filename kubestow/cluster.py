"""A cluster that is built step by step and simulated with several workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

from kubestow import option_values
from kubestow.result import Result
from kubestow.simulation import Input, InputError, NodesNeededAnswer, Options, nodes_needed, simulate
from simulator.builders import node
from simulator.simulate.input.documents import SyntaxMistake, documents


class Cluster:
    """The manifests of a cluster. It never changes: each method returns another cluster."""

    def __init__(self, *inputs: Input) -> None:
        """Take paths of files and directories, and manifests. They are read by each simulation."""
        self._inputs = inputs

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the paths and manifests in order."""
        return self._inputs

    def with_manifests(self, *inputs: Input) -> Self:
        """Add paths and manifests."""
        return type(self)(*self._inputs, *inputs)

    def with_yaml(self, text: str) -> Self:
        """Add the documents of a YAML or JSON text. Raises InputError if the text cannot be parsed or has no objects."""
        try:
            found = documents(option_values.text("text", text)).values
        except SyntaxMistake as mistake:
            raise InputError(
                f"text: line {mistake.line}: {mistake}" if mistake.line else f"text: {mistake}"
            ) from mistake
        manifests = [each for each in found if each is not None]
        for number, each in enumerate(manifests, start=1):
            if not isinstance(each, Mapping):  # a text would be taken for a path
                raise InputError(f"text: document {number}: must be an object, got {type(each).__name__}")
        return self.with_manifests(*manifests)

    def with_node(self, name: str, allocatable: Mapping[str, str], *, labels: Mapping[str, str] | None = None) -> Self:
        """Add a ready node: `with_node("n1", {"cpu": "8", "memory": "32Gi", "example.com/gpu": "4"})`.

        A node takes 110 pods unless `pods` has another number.
        """
        built = node(option_values.text("name", name)).labels(option_values.amounts("labels", labels))
        for resource, amount in option_values.amounts("allocatable", allocatable).items():
            built = built.resource(resource, amount)
        return self.with_manifests(built.obj())

    def simulate(self, *workload: Input, **options: Unpack[Options]) -> Result:
        """Schedule the workload on the cluster and return the result; `kubestow.simulate` has the options and errors.

        Pending pods of the cluster itself are scheduled, too.
        """
        return simulate(*self._inputs, *workload, **options)

    def nodes_needed(self, like: str, *workload: Input, **options: Unpack[Options]) -> NodesNeededAnswer:
        """Return how many more nodes like this one the workload needs; `kubestow.nodes_needed` has the options and errors."""
        return nodes_needed(like, *self._inputs, *workload, **options)

    def __repr__(self) -> str:
        names = (each if not isinstance(each, Mapping) else _name(each) for each in self._inputs)
        return f"Cluster({', '.join(map(str, names))})"


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    return f"{manifest.get('kind', '?')} {metadata.get('name', '?') if isinstance(metadata, Mapping) else '?'}"

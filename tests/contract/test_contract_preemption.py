"""What preemption goes by: disruption budgets, and the priorities that admission computes."""

import pytest

from tests.contract.conftest import Api, Object, denies, pod, problems, refusal
from tests.contract.words import condition

GROUP = "policy/v1"
SELECTOR: Object = {"matchLabels": {"app": "web"}}
ZEROS = dict.fromkeys(("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0)


async def test_a_budget_is_found_by_discovery(api: Api) -> None:
    listed = (await api("GET", f"/apis/{GROUP}")).body["resources"]
    shown = {each["name"]: (each["kind"], each["namespaced"], "watch" in each["verbs"]) for each in listed}
    assert shown == {
        "poddisruptionbudgets": ("PodDisruptionBudget", True, True),
        "poddisruptionbudgets/status": ("PodDisruptionBudget", True, False),
    }


async def test_a_new_budget_allows_nothing(api: Api) -> None:
    budgets = api.at(GROUP, "poddisruptionbudgets")
    spec: Object = {"minAvailable": 1, "selector": SELECTOR}
    body: Object = {"metadata": {"name": "a"}, "spec": spec, "status": {"disruptionsAllowed": 5}}
    created = (await api("POST", budgets, body)).body
    assert (created["metadata"]["generation"], created["spec"], created["status"]) == (1, spec, ZEROS)
    bare = (await api("POST", budgets, {"metadata": {"name": "b"}})).body
    assert (bare["spec"], bare["status"]) == ({}, ZEROS)


async def test_spec_and_status_are_two_halves(api: Api) -> None:
    budgets = api.at(GROUP, "poddisruptionbudgets")
    spec: Object = {"minAvailable": 1, "selector": SELECTOR}
    await api("POST", budgets, {"metadata": {"name": "a"}, "spec": spec})
    both: Object = {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 3}}
    changed = (await api.merge(f"{budgets}/a", both)).body
    assert (changed["metadata"]["generation"], changed["spec"]["minAvailable"], changed["status"]) == (2, "50%", ZEROS)
    status: Object = {"observedGeneration": 2, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}, "disruptionsAllowed": 3}
    patch: Object = {"metadata": {"labels": {"x": "y"}}, "spec": {"minAvailable": 9}, "status": status}
    shown = (await api.merge(f"{budgets}/a/status", patch)).body
    assert (shown["metadata"]["generation"], shown["spec"]["minAvailable"]) == (2, "50%")
    assert shown["status"] == ZEROS | status
    assert shown["metadata"]["labels"] == {"x": "y"}
    allowed = condition("DisruptionAllowed")
    for reason in ("SufficientPods", "Other"):
        told_again = {"status": {"conditions": [allowed | {"reason": reason}]}}
        shown = (await api.patch(f"{budgets}/a/status", told_again)).body
    assert shown["status"] == ZEROS | status | {"conditions": [allowed | {"reason": "Other"}]}


async def test_a_selector_is_patched_as_a_whole(api: Api) -> None:
    budgets = api.at(GROUP, "poddisruptionbudgets")
    await api("POST", budgets, {"metadata": {"name": "a"}, "spec": {"selector": SELECTOR}})
    other: Object = {"matchLabels": {"tier": "db"}}
    assert (await api.patch(f"{budgets}/a", {"spec": {"selector": other}})).body["spec"] == {"selector": other}
    merged = (await api.merge(f"{budgets}/a", {"spec": {"selector": SELECTOR}})).body["spec"]["selector"]
    assert merged == {"matchLabels": {"app": "web", "tier": "db"}}


@pytest.mark.parametrize(
    ("spec", "field", "why"),
    [
        pytest.param(
            {"minAvailable": 1, "maxUnavailable": "50%"},
            "spec",
            'Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"50%","UnhealthyPodEvictionPolicy":null}: '
            "minAvailable and maxUnavailable cannot be both set",
            id="both limits",
        ),
        pytest.param(
            {"minAvailable": -1},
            "spec.minAvailable",
            "Invalid value: -1: must be greater than or equal to 0",
            id="less than none",
        ),
        pytest.param(
            {"maxUnavailable": "150%"},
            "spec.maxUnavailable",
            'Invalid value: "150%": must not be greater than 100%',
            id="more than all",
        ),
        pytest.param(
            {"minAvailable": "half"},
            "spec.minAvailable",
            "Invalid value: \"half\": a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            id="neither a number nor a share",
        ),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["x"]}]}},
            "spec.selector.matchExpressions[0].operator",
            'Invalid value: "Like": not a valid selector operator',
            id="an operator that is none",
        ),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            id="one of nothing",
        ),
    ],
)
async def test_what_a_budget_may_not_say(api: Api, spec: Object, field: str, why: str) -> None:
    answer = await api("POST", api.at(GROUP, "poddisruptionbudgets"), {"metadata": {"name": "a"}, "spec": spec})
    denies(answer, 422, f'PodDisruptionBudget.policy "a" is invalid: {field}: {why}')
    assert problems(answer) == [(field, why)]


@pytest.mark.parametrize("name", ["Of the Web", "web_1", "-"])
async def test_the_name_of_a_budget_may_have_any_letters(api: Api, name: str) -> None:
    """No rule of validation is about the names of this kind."""
    assert (await api("POST", api.at(GROUP, "poddisruptionbudgets"), {"metadata": {"name": name}})).status == 201


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a/b", "may not contain '/'"),
        ("a%b", "may not contain '%'"),
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
    ],
)
async def test_the_name_of_a_budget_is_a_part_of_a_path(api: Api, name: str, why: str) -> None:
    answer = await api("POST", api.at(GROUP, "poddisruptionbudgets"), {"metadata": {"name": name}})
    assert (answer.status, problems(answer)) == (422, [("metadata.name", f'Invalid value: "{name}": {why}')])


async def test_all_mistakes_of_a_budget_at_once(api: Api) -> None:
    terms: list[Object] = [
        {"key": "A_", "operator": "In"},
        {"key": "a", "operator": "Exists", "values": ["v"]},
        {"key": "a", "operator": "X"},
    ]
    spec = {"minAvailable": -1, "selector": {"matchLabels": {"a": "_"}, "matchExpressions": terms}}
    answer = await api("POST", api.at(GROUP, "poddisruptionbudgets"), {"metadata": {"name": "a"}, "spec": spec})
    at = "spec.selector.matchExpressions"
    places = ["spec.minAvailable", "spec.selector.matchLabels"]
    places += [f"{at}[0].values", f"{at}[0].key", f"{at}[1].values", f"{at}[2].operator"]
    assert [field for field, _ in problems(answer)] == places


async def test_updates_are_checked_too(api: Api) -> None:
    budgets = api.at(GROUP, "poddisruptionbudgets")
    created = (await api("POST", budgets, {"metadata": {"name": "a"}, "spec": {"minAvailable": 1}})).body
    assert (await api.merge(f"{budgets}/a", {"spec": {"minAvailable": -2}})).status == 422
    negative = await api.merge(f"{budgets}/a/status", {"status": {"disruptionsAllowed": -1}})
    assert (negative.status, negative.body["details"]["causes"][0]["field"]) == (422, "status.disruptionsAllowed")
    blind = await api("PUT", f"{budgets}/a", {"metadata": {"name": "a"}, "spec": {"minAvailable": 2}})
    assert (blind.status, blind.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")
    seen = await api("PUT", f"{budgets}/a", created | {"spec": {"minAvailable": 2}})
    assert (seen.status, seen.metadata["generation"]) == (200, 2)
    api.succeeded(await api("DELETE", f"{budgets}/a"))
    assert (await api("GET", f"{budgets}/a")).status == 404


async def test_a_class_decides_whether_its_pods_preempt(api: Api) -> None:
    classes, meek, keen = "/apis/scheduling.k8s.io/v1/priorityclasses", f"meek-{api.ns}", f"keen-{api.ns}"
    made = (await api("POST", classes, {"metadata": {"name": keen}, "value": 7})).body
    assert (made["preemptionPolicy"], made["metadata"]["generation"]) == ("PreemptLowerPriority", 1)
    await api("POST", classes, {"metadata": {"name": meek}, "value": 7, "preemptionPolicy": "Never"})
    for name in (meek, keen):
        await api.until_known(name, priorityClassName=name)
        spec = (await api.pod(f"p-{name}", priorityClassName=name)).body["spec"]
        assert (spec["priority"], spec["preemptionPolicy"] == "Never") == (7, name == meek)
    await api.pod("same", priorityClassName=meek, preemptionPolicy="Never")
    for name, body, computed in (
        ("other", pod("other", priorityClassName=keen, preemptionPolicy="Never"), "PreemptLowerPriority"),
        ("bare", pod("bare", preemptionPolicy="Never"), "PreemptLowerPriority"),
        ("eager", pod("eager", priorityClassName=meek, preemptionPolicy="PreemptLowerPriority"), "Never"),
    ):
        why = (
            f"the string value of PreemptionPolicy ({body['spec']['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {computed} from the given PriorityClass name"
        )
        details = {"name": name, "kind": "pods"}
        refusal(await api("POST", api.pods, body), 403, "Forbidden", f'pods "{name}" is forbidden: {why}', details)


async def test_a_class_of_users_has_its_limits(api: Api) -> None:
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", f"c-{api.ns}"
    system = (await api("GET", f"{classes}/system-node-critical")).body
    assert (system["value"], system["preemptionPolicy"]) == (2_000_001_000, "PreemptLowerPriority")
    too_high = await api("POST", classes, {"metadata": {"name": name}, "value": 1_000_000_001})
    why = "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    denies(too_high, 422, f'PriorityClass.scheduling.k8s.io "{name}" is invalid: {why}')
    try:
        first = await api("POST", classes, {"metadata": {"name": name}, "value": 1_000_000_000, "globalDefault": True})
        assert first.status == 201
        await api.until_known(name)
        second = await api("POST", classes, {"metadata": {"name": f"{name}-2"}, "value": 1, "globalDefault": True})
        why = f"PriorityClass {name} is already marked as default. Only one default can exist"
        denies(second, 403, f'priorityclasses.scheduling.k8s.io "{name}-2" is forbidden: {why}')
    finally:
        await api("DELETE", f"{classes}/{name}")

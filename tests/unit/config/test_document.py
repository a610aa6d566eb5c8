"""YAML and JSON texts as values, durations as Go writes them, rules for names, and a configuration that is written out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from scheduler.config.args import default_args
from scheduler.config.document import format_duration, parse_duration_s, read_document, write_document
from scheduler.config.dump import to_document, without_keys
from scheduler.config.errors import ConfigErrors
from scheduler.config.fields import csi_driver, extended_resource, resource_group
from scheduler.config.load import default, parse
from scheduler.config.plugins import resolve
from scheduler.config.types import Configuration, ExtenderConfig, ExtenderTls, ManagedResource
from scheduler.core.feature_gates import BINDING_CONDITIONS, DEVICE_GATES_ON, FILTER_TIMEOUT
from tests.examples import SLOW_SHARE, examples
from tests.unit.config.documents import HEAD, read
from tests.unit.config.test_plugins import UPSTREAM


@pytest.mark.parametrize(("text", "value"), [
    pytest.param("", None, id="an empty text is nothing"),
    pytest.param("a: true\nb: False\nc: ~\nd:\n", {"a": True, "b": False, "c": None, "d": None}, id="true and null"),
    pytest.param("---\na: 5\n---\n# no more\n", {"a": 5}, id="what is empty is no second document"),
    pytest.param("a: !!int '5'\n", {"a": 5}, id="a tag may say what the quotes hide"),
    pytest.param("a: 5\nb: -3\nc: 0.5\nd: 1e3\n", {"a": 5, "b": -3, "c": 0.5, "d": 1000.0}, id="JSON's numbers"),
    pytest.param("a: 010\nb: 0x10\nc: 1:30\nd: 1_000\ne: 2001-01-01\nf: .inf\n",
        {"a": "010", "b": "0x10", "c": "1:30", "d": "1_000", "e": "2001-01-01", "f": ".inf"},
        id="numbers and dates that only some YAML readers see are texts"),
    pytest.param("a: 'no'\nb: \"on\"\n", {"a": "no", "b": "on"}, id="quoted words are texts"),
    pytest.param("on: 1\n", {"on": 1}, id="a key is a text, whatever the word"),
    pytest.param("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}, id="an alias repeats"),
    pytest.param("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n", {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}},
        id="a merged mapping gives way to own keys"),
    pytest.param("a:\n  <<: [{p: 1}, {p: 2}]\n", {"a": {"p": 1}}, id="of merged mappings the first wins"),
    pytest.param('{\n\t"a": "x\\ty"\n}', {"a": "x\ty"}, id="JSON may be indented with tabs"),
    pytest.param("a: " + "9" * 5000, {"a": float("inf")}, id="an endless number is no integer"),
])  # fmt: skip
def test_a_text_means_one_thing(text: str, value: object) -> None:
    """Scalars are typed as JSON would type them."""
    assert read_document(text).value == value


@pytest.mark.parametrize(("text", "said", "line"), [
    pytest.param("a: 1\nb:\n  c: 1\n  c: 2\n", "b.c: duplicate key in line 4", 3, id="a key twice"),
    pytest.param('{"a": 1,\n "a": 2}', "a: duplicate key in line 2", 1, id="a key twice in JSON"),
    pytest.param("a:\n- b: 1\n  b: 2\n", "a[0].b: duplicate key in line 3", 2, id="a key twice inside a list"),
    pytest.param("a: off\n", "a: the bare word off is a boolean to some: write true or false, or quote it", 1,
        id="a word that is a boolean to some"),
    pytest.param("a: 1\n--- \nb: 2\n", "a second document starts in line 3; one is expected", 3, id="two documents"),
    pytest.param("a: 1\nb: [1\n",
        "line 3, column 1: is not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'", 3,
        id="a list that never ends"),
    pytest.param("a: &x [*x]\n", "a[0]: is an alias of something that contains it", 1, id="an endless alias"),
    pytest.param("a: !!set {b}\n", "a: has the YAML tag tag:yaml.org,2002:set, which means nothing here", 1,
        id="a tag"),
    pytest.param("a: !!int b\n", "a: has the YAML tag int, and is no such number", 1, id="a number by its tag only"),
    pytest.param("a: !!float nan\n", "a: has the YAML tag float, and is no such number", 1, id="not a number"),
    pytest.param("a: !x b\n", "a: has the YAML tag !x, which means nothing here", 1, id="an unknown tag"),
    pytest.param("? [a]\n: 1\n", "a key must be a word", 1, id="a list as a key"),
    pytest.param("a:\n  <<: 1\n", "a: << must be followed by mappings", 1, id="merging a number"),
    pytest.param("[" * 5000, "is nested too deeply", 0, id="nested without end"),
    pytest.param("a: \x00\n", "is not YAML: unacceptable character", 0, id="a NUL"),
])  # fmt: skip
def test_what_is_ambiguous_is_refused(text: str, said: str, line: int) -> None:
    try:
        document = read_document(text)
    except ConfigErrors as broken:
        found, at = str(broken), broken.line
    else:
        [(path, message)] = document.mistakes
        found, at = f"{path}: {message}", document.lines[path]

    assert found.removeprefix(": ").startswith(said)
    assert at == line


def test_aliases_cannot_blow_up() -> None:
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)]

    with pytest.raises(ConfigErrors, match="has more than 100000 values"):
        read_document("\n".join(levels))


def test_every_field_has_a_line() -> None:
    lines = read_document("a:\n  - b: 1\n    c: 2\n  - 3\nd/e: 4\n").lines

    assert {path: line for path, line in lines.items() if path} == {
        "a": 1,
        "a[0]": 2,
        "a[0].b": 2,
        "a[0].c": 3,
        "a[1]": 4,
        "[d/e]": 5,
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab#: 'é\\\t"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab: ", max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_json_is_read_as_json(value: object, indent: int | str | None) -> None:
    assert read_document(json.dumps({"v": value}, indent=indent)).value == {"v": value}


@given(JSON | st.from_regex(r"[-+.0-9yYnNoO~<:ef_]{1,6}", fullmatch=True))
def test_what_is_written_is_read(value: object) -> None:
    text = write_document({"v": value})

    assert read_document(text).value == {"v": value}
    assert yaml.safe_load(text) == {"v": value}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h0m0.5s", 3600.5),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("-2s", -2.0),
        ("+1h", 3600.0),
        ("0", 0.0),
        ("10us", 0.00001),
        ("1.5h", 5400.0),
    ],
)
def test_reading(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "15", "s", "1 m", "1d", ".s", "1.2.3s", "1m-3s", "abc", "٣s", "--1s", "99999999h"]
)
def test_refusing(text: str) -> None:
    """A number needs a unit; there are no days; Go's limit holds."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (15.0, "15s"),
        (600.0, "10m0s"),
        (5400.25, "1h30m0.25s"),
        (0.3, "300ms"),
        (0.0000015, "1.5µs"),
        (7e-9, "7ns"),
        (-90.0, "-1m30s"),
    ],
)
def test_writing(seconds: float, text: str) -> None:
    """As Go's Duration.String."""
    assert format_duration(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_written_and_read_is_the_same(nanoseconds: int) -> None:
    seconds = nanoseconds / 1_000_000_000

    assert parse_duration_s(format_duration(seconds)) == seconds


LONG = "a" * 250 + ".b/x"
BAD = ["cpu", "kubernetes.io/x", "sub.kubernetes.io/x", "requests.example.com/x", LONG, "example.com/"]


@pytest.mark.parametrize("name", ["example.com/gpu", *BAD])
def test_extended_resources(name: str) -> None:
    assert (extended_resource(name) == []) is (name not in BAD)


@pytest.mark.parametrize(("group", "complaints"), [("example.com", 0), ("example.com/", 3), ("a b", 1)])
def test_resource_groups(group: str, complaints: int) -> None:
    assert len(resource_group(group)) == complaints


@pytest.mark.parametrize("name", ["ebs.csi.aws.com", "Upper.Example", "", "a/b", "a_b", "a" * 64])
def test_csi_drivers(name: str) -> None:
    assert (csi_driver(name) == []) is ("." in name)


NAMES = st.sampled_from(["kubestow", "batch", "a.b", "true", "1e3", "no", "~"])
DURATIONS = st.integers(0, 10**6).map(lambda ms: f"{ms}ms")
PLUGINS = st.sampled_from(sorted(UPSTREAM))
SETS = st.fixed_dictionaries(
    {
        "enabled": st.lists(PLUGINS, max_size=3, unique=True).map(
            lambda names: [{"name": n, "weight": 2} for n in names]
        ),
        "disabled": st.lists(PLUGINS | st.just("*"), max_size=2).map(lambda names: [{"name": n} for n in names]),
    }
)
RESOURCES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["cpu", "memory", "a.b/c"]), "weight": st.integers(0, 100)}),
    max_size=3,
)
SHAPES = st.lists(st.integers(0, 100), min_size=1, max_size=4, unique=True).map(
    lambda points: [{"utilization": u, "score": u % 11} for u in sorted(points)]
)
VICTIMS = st.sampled_from(["all", "own", "ownFirst"])
OURS = st.one_of(
    st.fixed_dictionaries({"parity": st.just(True)}, optional={"victims": VICTIMS}),
    st.fixed_dictionaries(
        {},
        optional={
            "victims": VICTIMS,
            "storageCapacityReservation": st.sampled_from(["ledger", "none"]),
            "storagePoolSharing": st.sampled_from(["learned", "all", "none"]),
            "requireCSINodeDrivers": st.lists(st.sampled_from(["a", "b.example"]), max_size=2),
            "deviceScoring": st.sampled_from(["pack", "firstFit", "leastFragmentation"]),
            "devicePreemption": st.sampled_from(["on", "none"]),
            "derivedNominations": st.sampled_from(["on", "none"]),
        },
    ),
)
ARGS = st.fixed_dictionaries(
    {},
    optional={
        "DefaultPreemption": st.fixed_dictionaries({"minCandidateNodesPercentage": st.integers(0, 100)}),
        "InterPodAffinity": st.fixed_dictionaries({"hardPodAffinityWeight": st.integers(0, 100)}),
        "NodeResourcesFit": st.one_of(
            RESOURCES.map(lambda listed: {"scoringStrategy": {"type": "MostAllocated", "resources": listed}}),
            SHAPES.map(
                lambda shape: {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "requestedToCapacityRatio": {"shape": shape},
                    }
                }
            ),
        ),
        "PodTopologySpread": st.integers(1, 5).map(
            lambda skew: {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": skew}
                ],
            }
        ),
        "VolumeBinding": st.fixed_dictionaries({"bindTimeoutSeconds": st.integers(0, 2**40)}),
        "DynamicResources": st.fixed_dictionaries({"filterTimeout": DURATIONS}),
        "NodeAffinity": st.just(
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["no", "1"]}]}
                        ]
                    }
                }
            }
        ),
        "Kubestow": OURS,
        "Theirs": st.dictionaries(NAMES, st.none() | st.integers() | NAMES, max_size=2),
    },
)
PROFILES = st.lists(
    st.tuples(NAMES, st.fixed_dictionaries({}, optional={"multiPoint": SETS, "filter": SETS, "score": SETS}), ARGS),
    min_size=1,
    max_size=2,
    unique_by=lambda profile: profile[0],
)


def as_profile(name: str, plugins: Any, args: dict[str, Any]) -> dict[str, Any]:
    config = [{"name": plugin, "args": value} for plugin, value in args.items()]
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": config}


@settings(max_examples=examples(60, share=SLOW_SHARE), deadline=None)
@given(
    st.fixed_dictionaries(
        {"profiles": PROFILES.map(lambda profiles: [as_profile(*p) for p in profiles])},
        optional={
            "percentageOfNodesToScore": st.integers(0, 100),
            "clientConnection": st.fixed_dictionaries({"qps": st.floats(0, 1000), "burst": st.integers(0, 1000)}),
            "leaderElection": st.fixed_dictionaries(
                {"leaderElect": st.just(False), "leaseDuration": DURATIONS, "resourceName": NAMES}
            ),
            "enableContentionProfiling": st.booleans(),
        },
    )
)
def test_a_configuration_that_was_written_is_read_the_same(fields: dict[str, Any]) -> None:
    configuration = read(fields)
    document = to_document(configuration)

    assert parse(json.dumps(document), source="json") == configuration
    assert parse(write_document(document), source="yaml") == configuration


@pytest.mark.parametrize(
    ("gates", "given"),
    [
        pytest.param(DEVICE_GATES_ON, {"filterTimeout", "bindingTimeout"}, id="on"),
        pytest.param(DEVICE_GATES_ON - {FILTER_TIMEOUT}, {"bindingTimeout"}, id="no limit to the search"),
        pytest.param(DEVICE_GATES_ON - {BINDING_CONDITIONS}, {"filterTimeout"}, id="nothing to wait for"),
    ],
)
def test_what_may_not_be_given_is_not_written(gates: frozenset[str], given: set[str]) -> None:
    configuration = default(feature_gates=gates)
    document = to_document(configuration)

    args = next(each for each in document["profiles"][0]["pluginConfig"] if each["name"] == "DynamicResources")["args"]
    assert given == args.keys() - {"apiVersion", "kind"}
    assert configuration == parse(json.dumps(document), source="json", feature_gates=gates)


def test_the_default_written_out() -> None:
    document = to_document(default())

    assert document["leaderElection"]["leaseDuration"] == "15s"
    assert document["profiles"][0]["schedulerName"] == "kubestow"
    kinds = [entry["args"]["kind"] for entry in document["profiles"][0]["pluginConfig"]]
    assert kinds == [f"{plugin}Args" for plugin in default_args()]
    ours = document["profiles"][0]["pluginConfig"][-1]["args"]
    assert (ours["parity"], ours["victims"]) == (False, "all")
    assert document.items() >= HEAD.items()


def test_resolved_lists_written_out_resolve_to_themselves() -> None:
    """So a written configuration also keeps its plugins when the defaults of a later version differ."""
    configuration = read(
        {
            "profiles": [
                {
                    "schedulerName": "p",
                    "plugins": {
                        "multiPoint": {"disabled": [{"name": "ImageLocality"}]},
                        "score": {"enabled": [{"name": "NodeAffinity", "weight": 9}]},
                    },
                }
            ]
        }
    )
    resolved = resolve(configuration.profiles[0].plugins, implements=UPSTREAM)
    document = to_document(configuration, resolved={"p": resolved})
    again = parse(json.dumps(document), source="again").profiles[0]

    assert resolve(again.plugins, implements=UPSTREAM, default=()).points == resolved.points
    assert resolve(again.plugins, implements=UPSTREAM).points == resolved.points


def test_private_keys_of_extenders_are_for_no_page() -> None:
    tls = ExtenderTls(cert_data=b"public", key_data=b"private")
    configuration = Configuration(extenders=(ExtenderConfig("http://x", tls=tls), ExtenderConfig("http://y")))
    [written, _] = to_document(without_keys(configuration))["extenders"]

    assert written["tlsConfig"]["certData"]
    assert "keyData" not in written["tlsConfig"]


def test_extenders_are_written_too() -> None:
    tls = ExtenderTls(server_name="s", ca_data=b"ca")
    extender = ExtenderConfig("http://x", "f", weight=2, tls=tls, managed_resources=(ManagedResource("a.b/c", True),))
    [written] = to_document(Configuration(extenders=(extender,)))["extenders"]

    assert written["urlPrefix"] == "http://x"
    assert written["httpTimeout"] == "5s"
    assert written["managedResources"] == [{"name": "a.b/c", "ignoredByScheduler": True}]
    assert written["tlsConfig"] == {
        "insecure": False,
        "serverName": "s",
        "certFile": "",
        "keyFile": "",
        "caFile": "",
        "caData": "Y2E=",
    }
    assert "ca" not in repr(tls).replace("ca_file", "")

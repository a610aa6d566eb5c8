"""Which functions there are: the declarations, not what they answer."""

from scheduler.cel.check.environment import KUBERNETES, STANDARD

UNDECLARED = ("math.greatest", "base64.encode", "regex.replace", "authorizer")


def test_no_two_overloads_of_a_function_share_an_id():
    """The checker and the costs tell overloads apart by their ids."""
    for name, overloads in KUBERNETES.functions.items():
        ids = [each.id for each in overloads]
        assert sorted(set(ids)) == sorted(ids), name


def test_kubernetes_adds_to_the_standard_and_takes_nothing_away():
    """Every standard overload is there, before those that Kubernetes adds."""
    for name, overloads in STANDARD.functions.items():
        assert overloads == KUBERNETES.functions[name][: len(overloads)]
    assert {"quantity", "semver", "ip", "cidr", "url", "find", "isSorted", "format.named", "includes"} <= (
        KUBERNETES.functions.keys() - STANDARD.functions.keys()
    )


def test_members_have_a_target():
    """The target is the first parameter."""
    assert all(each.params for overloads in KUBERNETES.functions.values() for each in overloads if each.member)


def test_libraries_that_kubernetes_does_not_have_are_not_declared():
    """math, encoders and cel-go's own regex library; strings are version 2, which reverses no text."""
    assert not set(UNDECLARED) & KUBERNETES.functions.keys()
    assert [("list",)] == [tuple(param.name for param in each.params) for each in KUBERNETES.functions["reverse"]]


def test_types_have_names_that_evaluate_to_them():
    """`type(x) == net.IP`."""
    assert {"int", "google.protobuf.Timestamp", "net.IP", "net.CIDR"} <= KUBERNETES.variables.keys()
    assert all("type" == each.name for each in KUBERNETES.variables.values())

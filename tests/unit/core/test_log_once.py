"""A text is new once for each subject, and again when it changes."""

from scheduler.core.caching import LogOnce


def test_a_text_is_new_once_per_subject() -> None:
    said = LogOnce()
    asked = [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")]

    assert [said.is_new(*each) for each in asked] == [True, False, True, True, True]


def test_a_subject_is_new_once_without_a_text() -> None:
    said = LogOnce()

    assert [said.is_new("a"), said.is_new("a")] == [True, False]


def test_a_forgotten_subject_is_new() -> None:
    said = LogOnce()
    said.is_new("a", "1")
    said.forget("a")
    said.forget("b")

    assert said.is_new("a", "1")


def test_the_number_of_subjects_is_limited() -> None:
    said = LogOnce(size=2)

    assert [said.is_new(each) for each in ("a", "b", "c", "a", "c")] == [True, True, True, True, False]

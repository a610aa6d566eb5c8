"""Callbacks hear of their topics until their subscription ends."""

from collections.abc import Callable

from scheduler.core.changes import Watchers


def test_a_callback_hears_of_its_topics_only() -> None:
    watchers, heard = Watchers(), list[str]()
    end = watchers.subscribe(["a", "b"], lambda: heard.append("first"))
    watchers.subscribe(iter(["b"]), lambda: heard.append("second"))
    for topic in ("a", "b", "c"):
        watchers.notify(topic)
    end()
    end()
    for topic in ("a", "b"):
        watchers.notify(topic)

    assert heard == ["first", "first", "second", "second"]
    assert len(watchers) == 1


def test_a_callback_that_ends_another_does_not_stop_the_news() -> None:
    watchers, heard, ends = Watchers(), list[str](), list[Callable[[], None]]()

    def first() -> None:
        heard.append("first")
        for end in ends:
            end()

    ends.append(watchers.subscribe("a", first))
    ends.append(watchers.subscribe("a", lambda: heard.append("second")))
    watchers.notify("a")
    watchers.notify("a")

    assert heard == ["first", "second"]
    assert not len(watchers)

"""What was worked out from a view is good for that view alone, and of bounded number."""

from __future__ import annotations

import gc
from weakref import ref

from forebay.app.view_memory import ViewMemory


class View:
    pass


def test_what_was_made_from_another_view_is_nothing() -> None:
    memory: ViewMemory[int] = ViewMemory(4)
    old, new = View(), View()
    memory.keep(old, "a", 1)
    assert memory.get(old, "a") == 1 and memory.get(new, "a") is None
    memory.keep(new, "a", 2)
    assert memory.get(new, "a") == 2 and memory.get(old, "a") is None


def test_the_least_recently_used_goes_first() -> None:
    memory: ViewMemory[int] = ViewMemory(2)
    view = View()
    memory.keep(view, "a", 1)
    memory.keep(view, "b", 2)
    assert memory.get(view, "a") == 1
    memory.keep(view, "c", 3)
    assert [memory.get(view, key) for key in "abc"] == [1, None, 3]


def test_a_view_is_not_held_on_to() -> None:
    memory: ViewMemory[int] = ViewMemory(2)
    view = View()
    memory.keep(view, "a", 1)
    gone = ref(view)
    del view
    gc.collect()
    assert gone() is None and memory.get(View(), "a") is None

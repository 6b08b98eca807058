from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txagent_train.data.components import connected_components


def test_items_are_tied_directly_through_others_or_not_at_all() -> None:
    assert connected_components([["a"], ["b"], ["b", "c"], ["d"], ["c"], []]) == [[0], [1, 2, 4], [3], [5]]
    assert connected_components([]) == []


@given(st.lists(st.sets(st.integers(0, 12), max_size=3), max_size=12))
def test_equals_the_transitive_closure(keys: list[set[int]]) -> None:
    """The slow way: merge groups that share a key until none do."""
    groups = [(set(own), {item}) for item, own in enumerate(keys)]
    merged = True
    while merged:
        merged = False
        for left in range(len(groups)):
            for right in range(left + 1, len(groups)):
                if groups[left][0] & groups[right][0]:
                    groups[left] = (groups[left][0] | groups[right][0], groups[left][1] | groups[right][1])
                    del groups[right]
                    merged = True
                    break
            if merged:
                break
    assert connected_components(keys) == sorted(sorted(items) for _, items in groups)

"""Connected components: items belong together where they share a key, directly or through others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """The components of items 0..N-1, where ``keys[i]`` are the keys of item i (union-find).

    Returns:
        Lists of positions, each ascending, in order of their first item. An item without keys stands alone.
    """
    parent = list(range(len(keys)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]  # halves the path, so that later walks are short
            item = parent[item]
        return item

    first_with: dict[Hashable, int] = {}
    for item, own in enumerate(keys):
        for key in own:
            other = root(first_with.setdefault(key, item))
            mine = root(item)
            # The smaller position wins, so that a root is the first item of its component.
            parent[max(other, mine)] = min(other, mine)
    components: dict[int, list[int]] = {}
    for item in range(len(keys)):
        components.setdefault(root(item), []).append(item)
    return list(components.values())

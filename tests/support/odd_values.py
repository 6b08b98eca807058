"""Sound records with one value replaced: whatever it is, a parser gives a trace or a DataError, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.checks import check_calls, check_complete

ODD_VALUES: tuple[Any, ...] = (None, 5, 1.5, True, "", "x", [], {}, [1], {"a": 1}, [None], float("inf"))


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*place, key))


def check_every_value(
    parse: Callable[[JsonObject], Trace], whole: JsonObject, odd_values: Sequence[Any] = ODD_VALUES
) -> None:
    """Replace each value of a record by each odd one, and read it."""
    for place in _places(whole):
        if not place:
            continue
        for odd in odd_values:
            item = copy.deepcopy(whole)
            holder: Any = item
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = odd
            try:
                trace = parse(item)
                check_complete(trace)
                check_calls(trace)
            except DataError as error:
                assert error.reason != "invalid_record", error

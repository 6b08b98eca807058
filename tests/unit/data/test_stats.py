from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.openai_records import assistant, call, record, tool, user, write_lines
from txagent_train.data.stats import collect_stats


def test_counts(tmp_path: Path) -> None:
    parallel = [
        user("ab"),
        assistant("c", call(id="x"), call("list_drugs", {}, id="y")),
        tool("d", "x"),
        tool("e", "y"),
    ]
    path = write_lines(
        tmp_path / "in.jsonl",
        [
            record("a", [*parallel, assistant("fg", reasoning="h")]),
            record("b", [user("ab"), assistant("c"), user("d")]),
            record("c", []),
        ],
    )
    counts = collect_stats(path, "openai").to_json()
    first = len("abcdefgh" + "get_dose" + '{"drug": "ibuprofen"}' + "list_drugs" + "{}")
    assert counts == {
        "format": "openai",
        "traces": 2,
        "kinds": {"trace": 2, "chat": 0},
        "messages": {"user": 3, "assistant": 3, "tool": 2},
        "questions": 1,
        "complete": 1,
        "incomplete": 1,
        "steps": 3,
        "calls": 2,
        "parallel_steps": 1,
        "error_results": 0,
        "tools": 2,
        "calls_by_tool": {"get_dose": 1, "list_drugs": 1},
        "steps_per_trace": {"1": 1, "2": 1},
        "characters": {"mean": (first + 4) / 2, "median": (first + 4) / 2, "max": first},
        "unreadable": {"empty_trace": 1},
    }


def test_genegpt_is_as_its_readme_says(shared_data: Callable[[str], Path]) -> None:
    counts = collect_stats(shared_data("genegpt/traces.jsonl.gz")).to_json()
    assert (counts["traces"], counts["questions"], counts["tools"]) == (1444, 383, 6)
    assert counts["calls_by_tool"]["esearch"] == 1063
    assert round(counts["steps"] / counts["traces"], 2) == 2.74
    assert counts["characters"] == {"mean": 3582.1, "median": 2025.0, "max": 16114}


def test_general_chat_is_counted_by_its_kind(shared_data: Callable[[str], Path]) -> None:
    counts = collect_stats(shared_data("sharegpt/glaive_toolcall_en.json")).to_json()
    assert (counts["format"], counts["traces"], counts["kinds"]) == ("sharegpt", 60, {"trace": 49, "chat": 11})
    assert counts["messages"] == {"user": 131, "assistant": 191, "tool": 60}
    assert counts["incomplete"] == 0


def test_rows_of_toolbench_are_complete_though_most_end_in_a_call(shared_data: Callable[[str], Path]) -> None:
    counts = collect_stats(shared_data("toolbench/train_messages.jsonl")).to_json()
    assert (counts["traces"], counts["questions"], counts["incomplete"]) == (36, 9, 4)

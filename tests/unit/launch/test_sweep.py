"""Sweeps: grid and seeds, and the table of what came out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.config.nodes import plain, read_yaml
from txagent_train.core.errors import UserError
from txagent_train.launch.sweep import SweepRun, outcome_of, read_sweep, runs_of, table_of, write_sweep


def test_every_combination_with_every_seed(tmp_path: Path) -> None:
    runs = runs_of(["train.learning_rate=[1e-4,2e-4]", "adapter.lora.r=[8,16]", "train.epochs=3"], range(3), tmp_path)
    assert len(runs) == 12 and len({run.output_dir for run in runs}) == 12
    assert runs[0].settings == "train.learning_rate=0.0001, adapter.lora.r=8"
    assert runs[0].output_dir == tmp_path / "learning_rate=0.0001,r=8" / "seed-0"
    assert runs[4].overrides == (
        "train.learning_rate=0.0001",
        "adapter.lora.r=16",
        "train.epochs=3",
        "seed=1",
        f'output_dir="{tmp_path}/learning_rate=0.0001,r=16/seed-1"',
    )


def test_only_seeds(tmp_path: Path) -> None:
    runs = runs_of([], range(2), tmp_path)
    assert [(run.settings, run.output_dir.name) for run in runs] == [
        ("as in the recipe", "seed-0"),
        ("as in the recipe", "seed-1"),
    ]


def test_two_keys_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = runs_of(["adapter.x.r=[1,2]", "model.r=[1,2]"], [0], tmp_path)
    assert len({run.output_dir for run in runs}) == 4


def test_a_list_as_a_value(tmp_path: Path) -> None:
    (run,) = runs_of(["tracking.tags=[[a,b]]"], [0], tmp_path)
    assert run.overrides[0] == 'tracking.tags=["a", "b"]'


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(values, min_size=1, max_size=3))
def test_each_value_arrives_as_it_was_written(found: list[object]) -> None:
    runs = runs_of([f"a.b={json.dumps(found)}"], [0], Path("sweep"))
    arrived = [plain(read_yaml(run.overrides[0].partition("=")[2], None)[0]) for run in runs]
    assert arrived == found and [type(item) for item in arrived] == [type(item) for item in found]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("train.epochs", "written key=value"),
        ("=3", "written key=value"),
        ("a=[]", "an empty list"),
        ("a=[1", "not YAML"),
        ("seed=[1,2]", "say --seeds N"),
        ("output_dir=x", "say --seeds N, and --out"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, override: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        runs_of([override], [0], tmp_path)


def test_a_key_twice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a: stands twice"):
        runs_of(["a=1", "a=2"], [0], tmp_path)


def test_the_index(tmp_path: Path) -> None:
    runs = runs_of(["a=[1,2]"], range(2), tmp_path)
    write_sweep(tmp_path, "r.yaml", runs)
    write_sweep(tmp_path, "r.yaml", runs)  # going on with the same sweep
    assert read_sweep(tmp_path) == runs
    with pytest.raises(UserError, match="another sweep is in this folder"):
        write_sweep(tmp_path, "r.yaml", runs[:2])
    with pytest.raises(UserError, match="there is no sweep here"):
        read_sweep(tmp_path / "elsewhere")


MANIFEST = {
    **{"command_line": [], "git": None, "python": "", "platform": "", "packages": {}},
    **{"state": "", "state_time": "", "created": "", "fingerprint": {}, "resumes": []},
}


def leave(run: SweepRun, state: str, losses: tuple[float, ...], held_out: float | None = None) -> None:
    run.output_dir.mkdir(parents=True)
    (run.output_dir / "manifest.json").write_text(json.dumps(MANIFEST | {"state": state}))
    records = [{"kind": "train", "step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
    if held_out is not None:
        records += [{"kind": "eval", "step": 0, "loss": 99.0}, {"kind": "eval", "step": len(losses), "loss": held_out}]
    (run.output_dir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_the_table_averages_what_finished_and_counts_the_rest(tmp_path: Path) -> None:
    runs = runs_of(["a=[1,2]"], range(4), tmp_path)
    leave(runs[0], "finished", (5.0, 1.0), held_out=2.0)
    leave(runs[1], "finished", (5.0, 3.0), held_out=4.0)
    leave(runs[2], "failed", (5.0,))
    leave(runs[4], "finished", (7.0,))
    leave(runs[5], "interrupted", (7.0,))
    (runs[6].output_dir).mkdir(parents=True)
    (runs[6].output_dir / "manifest.json").write_text("{")
    first, second = (row.to_json() for row in table_of([outcome_of(run) for run in runs]))
    assert first == {
        "settings": "a=1",
        "finished": 2,
        "not_finished": {"failed": 1, "missing": 1},
        "eval_loss": {"mean": 3.0, "sd": pytest.approx(2**0.5)},
        "loss": {"mean": 2.0, "sd": pytest.approx(2**0.5)},
        "steps": {"mean": 2.0, "sd": 0.0},
    }
    assert second["finished"] == 1 and second["loss"] == {"mean": 7.0, "sd": None} and "eval_loss" not in second
    assert second["not_finished"] == {"interrupted": 1, "unreadable": 1, "missing": 1}

"""``data check`` gives the verdicts of the real preparation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.openai_records import assistant, call, record, tool, user, write_lines
from tests.support.tiny_training import small_traces, tiny_recipe, write_traces
from tests.support.tokenizers import smollm2
from txagent_train.cli.data import app
from txagent_train.cli.data.judging import DEFAULT_MODEL
from txagent_train.config.loading import to_yaml
from txagent_train.core.errors import DataError, UserError
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat
from txagent_train.sft.prepare import Preparation

RUNNER = CliRunner()
LOOKUP = [user("Which dose?"), assistant("I look.", call()), tool(), assistant("5 mg.")]
CUT_SHORT = [user(), assistant(None, call()), tool()]
WRONG_CALL = [user(), assistant(None, call("no_such_tool")), tool(), assistant("Yes.")]


def _check(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = RUNNER.invoke(app, ["check", *map(str, arguments), "--json"], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


def _mixed(tmp_path: Path, records: Sequence[Sequence[dict[str, Any]]]) -> Path:
    return write_lines(tmp_path / "mixed.jsonl", [record(f"t{n}", list(item)) for n, item in enumerate(records)])


def test_without_a_recipe_it_judges_as_an_import_does(tmp_path: Path) -> None:
    path = _mixed(tmp_path, [LOOKUP, CUT_SHORT, WRONG_CALL, [], LOOKUP])
    code, report = _check(path)
    assert code == 0 and not report["stops"]
    (found,) = report["files"]
    assert (found["records"], found["traces"], found["samples"], found["format"]) == (5, 2, 4, "openai")
    reasons = {reason: item["count"] for reason, item in found["dropped_records"].items()}
    assert reasons == {"incomplete": 1, "undeclared_tool": 1, "empty_trace": 1}
    first = found["dropped_records"]["undeclared_tool"]["first"]
    assert (first["path"], first["line"], first["trace_id"], first["step"]) == (str(path), 3, "t2", 0) and first["fix"]
    assert 0 < found["supervised_tokens"] < found["tokens"] and found["longest_id"].startswith("t")
    kept = _check(path, "--incomplete", "steps", "--invalid-calls", "keep")[1]["files"][0]
    assert kept["traces"] == 4


def test_what_is_over_the_limit(tmp_path: Path) -> None:
    path = _mixed(tmp_path, [LOOKUP, LOOKUP])
    longest = _check(path)[1]["files"][0]["longest"]
    code, report = _check(path, "--max-length", 50)
    assert report["files"][0]["stopping"]["overlong"]["first"]["fix"].startswith(f"set data.max_length={longest} or")
    assert code == 2 and report["files"][0]["stopping"]["overlong"]["count"] == report["files"][0]["over_limit"] == 4
    code, report = _check(path, "--max-length", 50, "--overlong", "drop")
    assert code == 2 and report["files"][0]["dropped_samples"]["overlong"]["count"] == 4  # nothing is left to train on
    assert list(report["files"][0]["stopping"]) == ["no_samples"]
    for policy in ("drop", "summarize"):
        left_out = _check(path, "--max-length", 50, "--overlong", policy)[1]["files"][0]["dropped_samples"]["overlong"]
        assert left_out["first"]["fix"] == f"set data.max_length={longest} or more"


def test_only_the_first_records_are_read_unless_all_are_asked_for(tmp_path: Path) -> None:
    path = _mixed(tmp_path, [LOOKUP] * 5)
    assert [_check(path, "--first", 3)[1]["files"][0][key] for key in ("records", "whole")] == [3, False]
    assert [_check(path, "--first", 5)[1]["files"][0][key] for key in ("records", "whole")] == [5, True]
    assert [_check(path, "--first", 3, "--all")[1]["files"][0][key] for key in ("records", "whole")] == [5, True]


def test_a_file_that_cannot_be_read_on_stops_a_run(tmp_path: Path) -> None:
    path = _mixed(tmp_path, [LOOKUP, LOOKUP])
    path.write_bytes(path.read_bytes()[:-30])
    code, report = _check(path, "--format", "openai")
    assert code == 2 and report["files"][0]["samples"] == 2 and list(report["files"][0]["stopping"]) == ["torn_line"]


def test_the_table_names_place_and_remedy_and_reads_no_markup(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in.jsonl", [record("[bold]x\x1b[2J", CUT_SHORT), record("b", LOOKUP)])
    shown = RUNNER.invoke(app, ["check", str(path)], catch_exceptions=False, env={"COLUMNS": "400"}).stdout
    assert "record left out: incomplete" in shown and "in.jsonl:1, trace [bold]x" in shown
    assert "--incomplete steps" in shown and "\x1b[2J" not in shown


def test_neither_a_file_nor_a_recipe() -> None:
    for arguments in (["check"], ["check", "data.max_length=5"]):
        with pytest.raises(UserError, match=r"no file is named|none is named"):
            RUNNER.invoke(app, arguments, catch_exceptions=False)


def _recipe(tmp_path: Path, **data: Any) -> tuple[Path, Preparation]:
    recipe = tiny_recipe(tmp_path, data={"eval": []} | data, model={"name_or_path": DEFAULT_MODEL})
    path = tmp_path / "recipe.yaml"
    tmp_path.mkdir(exist_ok=True)
    path.write_text(to_yaml(recipe))
    return path, Preparation.of(recipe, Renderer(smollm2(), WireFormat("chatml", "txagent", "call")))


def _same_verdict(recipe: Path, preparation: Preparation) -> list[dict[str, Any]]:
    """What the check says of the files, once it is what the preparation says."""
    code, report = _check("--recipe", recipe, "--all")
    try:
        (rows,) = preparation.epochs(1, traces_per_step=1, max_steps=None)
    except DataError as fault:
        assert code == 2 and report["stops"]
        reasons = {reason for item in report["files"] for reason in item["stopping"]}
        assert fault.reason in reasons or fault.reason == "no_samples"
        return list(report["files"])
    assert code == 0 and not report["stops"]
    made = rows.report
    files = report["files"]
    assert sum(item["samples"] for item in files) == made.rows
    assert sum(item["tokens"] for item in files) == made.tokens
    assert sum(item["supervised_tokens"] for item in files) == made.supervised_tokens
    assert max(item["longest"] for item in files) == made.longest
    assert sum(item["neutralised"] for item in files) == made.neutralised
    for name, counts in (("dropped_records", made.dropped_traces), ("dropped_samples", made.dropped)):
        found: dict[str, int] = {}
        for item in files:
            for reason, entry in item[name].items():
                found[reason] = found.get(reason, 0) + entry["count"]
        assert found == dict(counts)
    return list(files)


@pytest.mark.parametrize("policy", ["error", "drop"])
def test_the_verdicts_of_the_preparation_on_faulty_data(
    policy: str, tmp_path: Path, shared_data: Callable[[str], Path]
) -> None:
    for path in sorted(shared_data("malformed").glob("*.jsonl")):
        folder = tmp_path / path.stem
        source = {"path": str(path), "format": "openai"}
        _same_verdict(*_recipe(folder, sources=[source], invalid_calls=policy, incomplete=policy))


def test_the_verdicts_of_the_preparation_on_what_is_excluded_or_too_long(tmp_path: Path) -> None:
    path = write_traces(tmp_path / "data.jsonl", small_traces(6))
    excluded = tmp_path / "excluded.txt"
    excluded.write_text(small_traces(6)[0].question.split()[-1].strip("?") + "\n")
    sources = [{"path": str(path)}]
    lengths = [_check(path, "--all")[1]["files"][0]["longest"] - 1, 10]
    for number, overlong in enumerate(["error", "drop", "summarize"]):
        for limit in lengths:
            folder = tmp_path / f"{number}-{limit}"
            _same_verdict(*_recipe(folder, sources=sources, overlong=overlong, max_length=limit))
    (found,) = _same_verdict(*_recipe(tmp_path / "excluded", sources=sources, exclude=[str(excluded)]))
    assert found["dropped_records"]["excluded_entity"]["count"] == 1


def test_what_stops_a_run_with_held_out_data(tmp_path: Path) -> None:
    path = write_traces(tmp_path / "data.jsonl", small_traces(4))
    held = _mixed(tmp_path, [CUT_SHORT])
    sources = [{"path": str(path)}]
    recipe, preparation = _recipe(
        tmp_path / "empty", sources=sources, eval=[{"path": str(held), "format": "openai"}], incomplete="drop"
    )
    code, report = _check("--recipe", recipe)
    assert code == 2 and [list(item["stopping"]) for item in report["files"]] == [[], ["no_samples"]]
    with pytest.raises(DataError) as caught:
        preparation.evaluation()
    assert caught.value.problem == report["files"][1]["stopping"]["no_samples"]["first"]["problem"]
    shown = RUNNER.invoke(app, ["check", "--recipe", str(recipe)], catch_exceptions=False).stdout
    assert "STOPS THE RUN: no_samples" in shown and "A run would stop (1 error)" in shown


def test_files_with_the_same_content_stop_a_run(tmp_path: Path) -> None:
    path, copy = (write_traces(tmp_path / name, small_traces(4)) for name in ("data.jsonl", "copy.jsonl"))
    recipe = tiny_recipe(tmp_path, data={"sources": [{"path": str(path)}], "eval": [{"path": str(copy)}]})
    (tmp_path / "same.yaml").write_text(to_yaml(recipe))
    code, report = _check("--recipe", tmp_path / "same.yaml", f"model.name_or_path={DEFAULT_MODEL}")
    assert code == 2 and not any(item["stopping"] for item in report["files"])
    (problem,) = report["problems"]
    assert problem.startswith("data.eval.0.path: has the same content as data.sources.0.path")
    copy.write_text(path.read_text().replace("trace-1", "trace-9"))  # of the same size
    code, report = _check("--recipe", tmp_path / "same.yaml", f"model.name_or_path={DEFAULT_MODEL}")
    assert code == 0 and not report["problems"]


@pytest.mark.parametrize("kind", ["qa", "summary"])
def test_rows_with_the_same_id_stop_a_run(tmp_path: Path, kind: str) -> None:
    row = {"id": "a", "question": "Q?", "answer": "A."} if kind == "qa" else {"id": "a", "text": "T.", "summary": "S."}
    path = write_lines(tmp_path / "rows.jsonl", [row, row])
    (found,) = _same_verdict(*_recipe(tmp_path / "run", sources=[{"path": str(path), "kind": kind, "format": "auto"}]))
    assert found["stopping"]["duplicate_id"]["first"]["line"] == 2


def test_half_a_surrogate_pair_in_an_id_is_written_as_an_escape(tmp_path: Path) -> None:
    path = _mixed(tmp_path, [LOOKUP])
    path.write_text(path.read_text().replace('"t0"', '"t\\ud83d"'))
    for command in ("check", "show"):
        code = "import sys; from txagent_train.cli.app import main; sys.argv = ['x', *sys.argv[1:]]; main()"
        arguments = [sys.executable, "-c", code, "data", command, str(path), "--json"]
        done = subprocess.run(arguments, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr and b"\\ud83d" in done.stdout
        json.loads(done.stdout)


def test_no_torch_is_imported(tmp_path: Path) -> None:
    path = write_traces(tmp_path / "data.jsonl", small_traces(2))
    code = (
        "import sys; sys.argv = ['x', 'data', sys.argv[1], sys.argv[2]]\n"
        "from txagent_train.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "loaded = {'torch', 'transformers', 'datasets'} & set(sys.modules)\n"
        "sys.exit(f'imported: {loaded}' if loaded else 0)"
    )
    for command in ("show", "check"):
        subprocess.run([sys.executable, "-c", code, command, str(path)], check=True, capture_output=True)

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.openai_records import record, write_lines
from tests.support.spec_items import V0_ITEM, plain
from txagent_train.cli.tools import app
from txagent_train.core.errors import DataError, UserError

RUNNER = CliRunner()
EMBEDDED = "embedded:smollm2-135m-instruct"
LOOP = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    faulty = {"name": "broken", "description": "", "parameter": {"type": "objekt", "properties": {"a": {}}}}
    path.write_text(json.dumps([V0_ITEM, {**V0_ITEM, "name": "[bold]x[/nonsense]"}, faulty, 5]))
    return path


def _run(*arguments: object) -> str:
    result = RUNNER.invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _json(*arguments: object) -> dict[str, Any]:
    out = json.loads(_run(*arguments, "--json"))
    assert isinstance(out, dict)
    return out


def test_import_check_stats_export(source: Path, tmp_path: Path) -> None:
    toolbox = tmp_path / "tools.json"
    report = _json("import", source, "--out", toolbox)
    assert (report["read"], report["accepted"], report["dropped"]) == (4, 3, {"not_a_tool": 1})
    assert report["formats"] == {"tooluniverse_v0": 3} and report["guessed"]
    found = _json("check", toolbox)
    assert found["tools"] == 3 and found["with_findings"] == 2
    assert found["counts"]["invalid_schema"] == 1 and found["counts"]["empty_description"] == 1
    counts = _json("stats", toolbox, "--model", EMBEDDED)
    assert counts["tools"] == 3 and counts["hash"] == report["hash"] and counts["spec_tokens"]["max"] > 10
    back = tmp_path / "back.json"
    assert _json("export", toolbox, "--out", back)["formats"] == {"tooluniverse_v0": 3}
    assert json.loads(back.read_text()) == json.loads(source.read_text())[:3]


def test_tables_show_the_same(source: Path, tmp_path: Path) -> None:
    toolbox = tmp_path / "tools.json"
    shown = _run("import", source, "--out", toolbox)
    assert "format: 3 tooluniverse_v0 (guessed)" in shown and "read 4, accepted 3" in shown
    assert "not_a_tool" in shown and "tools.json.dropped.jsonl" in shown
    found = _run("check", toolbox)
    assert "invalid_schema" in found and "objekt" in found and "[bold]x[/nonsense]" in found
    assert "hash: " in _run("stats", toolbox) and "string" in _run("stats", toolbox)
    assert "has no place for it" in _run("export", toolbox, "--format", "openai", "--out", tmp_path / "o.json")


def test_check_is_strict_when_asked(source: Path, tmp_path: Path) -> None:
    assert RUNNER.invoke(app, ["check", str(source), "--strict"]).exit_code != 0  # 5 is no tool
    toolbox = tmp_path / "tools.json"
    _run("import", source, "--out", toolbox)
    assert RUNNER.invoke(app, ["check", str(toolbox)]).exit_code == 0
    assert RUNNER.invoke(app, ["check", str(toolbox), "--strict"]).exit_code == 2
    sound = tmp_path / "sound.json"
    sound.write_text(json.dumps([V0_ITEM]))
    assert "1 tool: nothing found" in _run("check", sound, "--strict")


def test_a_reference_to_itself_is_found_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"name": "loop", "description": "x", "parameters": LOOP}]))
    assert _json("check", path)["counts"] == {"circular_ref": 2}


def test_a_long_list_of_findings_is_cut_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{**plain(f"tool_{n}"), "description": ""} for n in range(9)]))
    assert "... and 4 more (--all)" in _run("check", path) and "tool_8" not in _run("check", path)
    assert "tool_8" in _run("check", path, "--all")


def test_migrate(tmp_path: Path) -> None:
    traces = write_lines(tmp_path / "in.jsonl", [record("t1"), record("t2")])
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([plain("dose_of", drug={"type": "integer"})]))
    names = tmp_path / "map.json"
    names.write_text(json.dumps([{"old_name": "get_dose", "new_name": "dose_of"}]))
    arguments = ["migrate", traces, "--map", names, "--to", "v1", "--toolbox", tools]
    report = _json(*arguments, "--out", tmp_path / "out.jsonl")
    assert (report["read"], report["accepted"], report["calls"]) == (2, 2, 2)
    assert report["invalid_arguments"] == {"dose_of": 2} and report["unmapped"] == {"list_drugs": 2}
    shown = _run(*arguments, "--out", tmp_path / "out2.jsonl")
    assert "read 2, migrated 2" in shown and "2 calls migrated, 2 do not fit" in shown and "list_drugs" in shown
    stopped = RUNNER.invoke(app, [*map(str, arguments), "--unmapped", "error", "--out", str(tmp_path / "o3.jsonl")])
    assert isinstance(stopped.exception, DataError) and "list_drugs" in str(stopped.exception)


def test_what_migrate_and_unseen_read_is_not_written_over(tmp_path: Path) -> None:
    traces = write_lines(tmp_path / "seen.jsonl", [record("t1")])
    (tmp_path / "t.json").write_text("[]")
    before = traces.read_bytes()
    for arguments in (
        [
            "migrate",
            traces,
            "--map",
            tmp_path / "t.json",
            "--to",
            "v1",
            "--toolbox",
            tmp_path / "t.json",
            "--out",
            traces,
        ],
        ["unseen", traces, "--toolbox", tmp_path / "t.json", "--rewrites", tmp_path / "t.json", "--out", tmp_path],
    ):
        result = RUNNER.invoke(app, [*map(str, arguments), "--overwrite"])
        assert isinstance(result.exception, UserError) and "nothing is written over it" in str(result.exception)
    assert traces.read_bytes() == before


def test_errors_are_user_errors(source: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "o.json")
    for arguments in (
        ["import", str(source), "--format", "nonsense", "--out", out],
        ["import", str(tmp_path / "absent.json"), "--out", out],
        ["import", str(source), "--out", str(source / "below")],
        ["check", str(tmp_path / "absent.json")],
        ["export", str(tmp_path / "in.json"), "--format", "nonsense", "--out", out],
    ):
        assert isinstance(RUNNER.invoke(app, arguments).exception, UserError), arguments
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_real_specs_pass_through(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    sources = [shared_data("tooluniverse_v0/tools.json"), shared_data("tooluniverse_v1/specs.json")]
    report = _json("import", *sources, "--out", tmp_path / "t.json")
    assert report["formats"] == {"tooluniverse_v0": 214, "tooluniverse_v1": 60} and not report["dropped"]


def test_heavy_libraries_are_not_imported() -> None:
    heavy = "{'torch', 'transformers', 'datasets', 'pyarrow', 'tokenizers'}"
    code = f"import sys, txagent_train.cli.tools; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

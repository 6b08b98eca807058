from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from txagent_train.core.errors import DataError, RunDirError
from txagent_train.core.records import Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.tracking.html import format_cell
from txagent_train.tracking.metrics import MetricsLog
from txagent_train.tracking.report import Report, build_run_report, load_sections, save_section
from txagent_train.tracking.run_dir import RunDir, RunState
from txagent_train.tracking.sections import (
    Code,
    Curves,
    KeyFigures,
    Section,
    Table,
    Text,
    Traces,
    section_from_json,
    section_to_json,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\x1b\ud800"
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def trace(text: str = "plain", *, result: str = "fine") -> Trace:
    tool = ToolSpec("look_up", text, {"type": "object", "description": text})
    nested = Trace("nested", (UserMessage("inner question"), Step(thought="inner")), answer="inner answer")
    return Trace(
        id=f"trace-{text}",
        system=text,
        entities=(text,),
        initial_tools=(tool,),
        turns=(
            UserMessage(f"question {text}"),
            Step(
                thought=f"thought {text}",
                reasoning=f"reasoning {text}",
                calls=(ToolCall(f"look_up {text}", {"key": text, "n": 1.0}), ToolCall("call_agent", {})),
                results=(ToolResult(0, result, truncated=True), ToolResult(1, {"text": text}, sub_trace=nested)),
                tools_added=(ToolSpec(f"added {text}", "d", {}),),
                summary=f"summary {text}",
                weight=0.5,
            ),
            Step(
                raw_output=f"raw {text}",
                status=StepStatus.UNPARSABLE,
                train=False,
                results=(ToolResult(None, f"cannot read {text}", is_error=True),),
            ),
            Step(thought="last"),
        ),
        answer=f"answer {text}",
    )


def all_sections(text: str) -> Sequence[Section]:
    return (
        Text(text, (text, "second")),
        KeyFigures(text, {text: text, "n": 3}),
        Table(text, (text, "n"), ((text, 1), (None, 2.5)), note=text, bars=("n",)),
        Curves(text, {text: ((1.0, 2.0), (2.0, 1.0)), "other": ((1.0, 1.0),)}, text, text, note=text),
        Code(text, text),
        Traces(text, (trace(text),), (text,), note=text),
    )


def write(path: Path, title: str, sections: Sequence[Section]) -> str:
    report = Report(title, title)
    for section in sections:
        report.add(section)
    report.write(path / "report.html")
    return (path / "report.html").read_text(encoding="utf-8")


def test_every_kind_of_section_survives_json() -> None:
    for section in all_sections("a"):
        assert section_from_json(json.loads(json.dumps(section_to_json(section)))) == section


def test_nothing_from_data_becomes_markup(tmp_path: Path) -> None:
    hostile = Page(write(tmp_path, HOSTILE, all_sections(HOSTILE)))
    plain = Page(write(tmp_path, "plain", all_sections("plain")))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.count("script") == 1
    assert not any(name.startswith("on") for _, attributes in hostile.tags for name in attributes)
    assert (
        "onerror=alert(2)" in hostile.text
        and "\N{SYMBOL FOR NULL}\N{SYMBOL FOR ESCAPE}\N{REPLACEMENT CHARACTER}" in hostile.text
    )


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    html = write(tmp_path, "title", all_sections("plain"))
    page = Page(html)
    assert not {"link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not any({"src", "srcset"} & attributes.keys() for _, attributes in page.tags)
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in page.tags)
    assert "url(" not in html and "@import" not in html
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers) == 6
    assert {f"#{name}" for name in identifiers} == {a["href"] for tag, a in page.tags if tag == "a"}


def test_the_policy_admits_the_page_s_own_script_only(tmp_path: Path) -> None:
    import base64
    import hashlib

    html = write(tmp_path, "title", [])
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html and "default-src 'none'" in html


def test_a_trace_shows_all_that_is_on_record(tmp_path: Path) -> None:
    long = "begin " + "x" * 5000 + " the end"
    text = Page(write(tmp_path, "t", [Traces("Traces", (trace(result=long),), ("wrong",))])).text
    for part in (
        *("wrong", "question plain", "3 steps", "reasoning plain", "thought plain", "look_up plain", '"n": 1.0'),
        *("Result, shortened", "show or hide all 5,014 characters", "the end", "inner question", "inner answer"),
        *("1 tool added", "added plain", "summary plain", "weight 0.5"),
        *("raw plain", "unparsable", "not trained on", "Result, error", "cannot read plain", "last", "answer plain"),
    ):
        assert part in text, part


def test_labels_and_rows_must_fit() -> None:
    with pytest.raises(DataError, match="2 labels for 1 traces"):
        Report("t").traces("h", [trace()], ["a", "b"])
    with pytest.raises(DataError, match="a row does not fit"):
        Report("t").table("h", ["a", "b"], [[1]])
    with pytest.raises(DataError, match="unknown column"):
        Report("t").table("h", ["a"], [[1]], bars=["b"])


def test_numbers_are_readable(tmp_path: Path) -> None:
    values = [format_cell(value) for value in (None, True, 1234567, 0.123456, 12345.6, 2e-5, float("nan"), "text")]
    assert values == ["\N{EN DASH}", "yes", "1,234,567", "0.1235", "12,346", "2e-05", "nan", "text"]
    html = write(tmp_path, "t", [Table("h", ("model", "share"), (("a", 0.0), ("b", 0.25), ("c", 1.0)))])
    assert re.findall(r'<td class="number">([^<]*)', html) == ["0.00", "0.25", "1.00"]


def test_saved_sections_come_back_in_the_order_of_their_names(tmp_path: Path) -> None:
    sections = all_sections("a")
    for index in (3, 0, 5, 1, 4, 2):
        save_section(tmp_path, f"{index}0-part", sections[index])
    save_section(tmp_path, "00-part", sections[0])
    assert load_sections(tmp_path) == list(sections)
    assert load_sections(tmp_path / "absent") == []
    with pytest.raises(ValueError, match="lower-case"):
        save_section(tmp_path, "../x", sections[0])


def test_a_curve_that_is_not_finite_survives_saving(tmp_path: Path) -> None:
    save_section(tmp_path, "c", Curves("h", {"s": ((1.0, float("inf")),)}, "x", "y"))
    [section] = load_sections(tmp_path)
    assert isinstance(section, Curves) and section.series["s"][0][1] == float("inf")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"kind": "film"}', '{"kind": "text"}', '{"kind": "text", "heading": 1, "x": 2}']
)
def test_a_bad_section_names_its_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "bad.json").write_text(content)
    with pytest.raises(DataError, match=r"report/bad\.json"):
        load_sections(tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.open_for_training(
        tmp_path / "demo", fingerprint={"seed": 0}, manifest={"name": "my run"}, recipe_yaml="seed: 0\n", resume=False
    )


def test_a_run_without_metrics_has_a_report(run: RunDir) -> None:
    text = Page(build_run_report(run.root).read_text(encoding="utf-8")).text
    assert "my run" in text and "No metrics have been recorded yet." in text and "seed: 0" in text


def test_the_report_of_a_run(run: RunDir) -> None:
    log = MetricsLog(run.metrics_path)
    for step in range(1, 11):
        log.append(
            {
                "step": step,
                "kind": "train",
                "loss": 1 / step,
                "learning_rate": 1e-4,
                "some_new_metric": step,
                "epoch": 1,
            }
        )
    log.append({"step": 10, "kind": "eval", "loss": 0.3, "perplexity": 1.35})
    with open(run.metrics_path, "a") as file:
        file.write('{"step": 11, "ki')
    save_section(
        run.root, "10-comparison", Table("Before and after", ("model", "right"), (("base", 0.0), ("tuned", 0.9)))
    )
    run.mark(RunState.FAILED, error="the disk is full")
    path = build_run_report(run.root)
    assert path == run.report_path
    page = Page(path.read_text(encoding="utf-8"))
    assert page.count("svg") == 3
    for part in (
        "failed",
        "the disk is full",
        "Before and after",
        "Some new metric",
        "perplexity",
        "Unfinished metrics",
    ):
        assert part in page.text, part
    assert "Learning rate" in page.text and "Duration" in page.text


def test_no_run_no_report(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="not a run directory"):
        build_run_report(tmp_path)

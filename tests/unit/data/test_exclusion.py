from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.exclusion import Exclusion


def _list(tmp_path: Path, text: str) -> Exclusion:
    path = tmp_path / "excluded.txt"
    path.write_text(text, encoding="utf-8")
    return Exclusion.read([path])


def _asked(question: str, *, entities: Sequence[str] = (), answer: str = "Yes.") -> Trace:
    return Trace("t", (UserMessage(question), Step("I know.")), answer=answer, entities=tuple(entities))


@pytest.mark.parametrize(
    ("entity", "text", "found"),
    [
        ("iron", "Is IRON safe?", True),
        ("iron", "Iron-deficiency anaemia, what helps?", True),
        ("iron", "Is the environment safe? And spironolactone, ironing, irons?", False),
        ("folic acid", "Is folic\n acid safe?", True),
        ("folic acid", "Is folic or another acid safe?", False),
        ("folic acid", "Is folic", False),
        ("co-trimoxazole", "Is co\u2011trimoxazole safe?", True),
        ("co-trimoxazole", "Is co trimoxazole safe?", True),
        ("co-trimoxazole", "Is trimoxazole safe?", False),
        ("St. John's wort", "Does st john\u2019s WORT help?", True),
        ("5-FU", "Is 5-fu given?", True),
        ("5-FU", "Is 15-FU given?", False),
        ("Ménière", "What helps in me\u0301nie\u0300re disease?", True),
        ("vitamin B1", "Is vitamin B12 safe?", False),
        ("ibuprofen", "Is ibu\u00adprofen safe?", True),
        ("ibuprofen", "Is i\u200bbu\u2060pro\ufefffen safe?", True),
        ("ibuprofen", "Is \uff49\uff42\uff55\uff50\uff52\uff4f\uff46\uff45\uff4e safe?", True),
        ("ibuprofen", "Is aspirin\u200bor\u200bibuprofen\u200bsafer?", True),
        ("ibuprofen", "Is Ibuprofen\u2122 safe?", True),
        ("ibuprofen", "Is ibuprofen\u00b9 safe?", True),
        ("ibu\u00adprofen", "Is ibuprofen safe?", True),
        ("iron", "Is the env\u00adiron\u00adment safe?", False),
        ("vitamin B12", "Is vitamin B\u2081\u2082 safe?", True),
        ("St. John's wort", "Does st john\u02bcs wort help?", True),
    ],
)
def test_names_are_found_as_whole_words(tmp_path: Path, entity: str, text: str, found: bool) -> None:
    assert _list(tmp_path, entity).match(_asked(text)) == (entity if found else None)


def test_entities_decide_where_there_are_any(tmp_path: Path) -> None:
    exclusion = _list(tmp_path, "new  Drug\n")
    assert exclusion.match(_asked("Is it safe?", entities=["other", "NEW drug"])) == "NEW drug"
    assert exclusion.match(_asked("Is new drug safer?", entities=["other", "new drug XR"])) is None


@pytest.mark.parametrize("empty", ["", " ", "\u200b", "---"])
def test_entities_that_name_nothing_decide_nothing(tmp_path: Path, empty: str) -> None:
    exclusion = _list(tmp_path, "newdrug")
    assert exclusion.match(_asked("Is newdrug safe?", entities=[empty])) == "newdrug"
    assert exclusion.match(_asked("Is newdrug safe?", entities=[empty, "other"])) is None


@pytest.mark.parametrize(
    "spelling", ["co trimoxazole", "Co\u2011Trimoxazole", "co-tri\u00admoxazole", "CO\u00a0trimoxazole"]
)
def test_entities_are_compared_by_their_words(tmp_path: Path, spelling: str) -> None:
    assert _list(tmp_path, "co-trimoxazole").match(_asked("Is it safe?", entities=[spelling])) == spelling


def test_all_that_is_said_counts_and_thoughts_beside_calls_do_not(tmp_path: Path) -> None:
    exclusion = _list(tmp_path, "newdrug")
    look = Step("Not newdrug.", calls=(ToolCall("get", {"drug": "newdrug"}),), results=(ToolResult(0, "newdrug"),))
    assert exclusion.match(Trace("t", (UserMessage("Which?"), look, Step()), answer="Another.")) is None
    assert exclusion.match(Trace("t", (UserMessage("Which?"), look, Step()), answer="Newdrug.")) == "newdrug"
    assert exclusion.match(Trace("t", (UserMessage("Which?"), Step("Newdrug!")))) == "newdrug"
    assert (
        exclusion.match(Trace("t", (UserMessage("?"), Step("Yes?"), UserMessage("newdrug"), Step("No.")))) is not None
    )


def test_lists_have_comments_and_may_be_several(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes("\ufeff# approved in 2024\r\nAlpha\r\n\r\n".encode())
    second.write_text("  # more\n beta \n")
    exclusion = pickle.loads(pickle.dumps(Exclusion.read([first, second])))
    assert exclusion.names == {("alpha",), ("beta",)}
    with pytest.raises(DataError, match=r"the trace is about 'Alpha', which data.exclude leaves out") as caught:
        exclusion.check(_asked("Is alpha safe?"))
    assert caught.value.reason == "excluded_entity"
    exclusion.check(_asked("Is gamma safe? # approved"))
    Exclusion.read([]).check(_asked("Is alpha safe?"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "names no entity"),
        (b"# none\n\n", "names no entity"),
        (b"a\n+\n", ":2: '\\+' is no name"),
        (b"\xff", "UTF-8"),
    ],
)
def test_faulty_lists_are_errors(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "excluded.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        Exclusion.read([path])


def test_a_list_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: the exclusion list cannot be read"):
        Exclusion.read([tmp_path / "absent.txt"])

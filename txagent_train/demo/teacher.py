"""A scripted teacher: writes traces by calling the demo tools, one script per kind of question.

    steps  kinds
    1      out_of_scope
    2      lookup, compare, two_fields, interaction, search, generic_name, brand_names
    3      brand, search_then_lookup, rag
    4      unknown_brand, misspelt        (an empty result, and recovery from it)
    5      rag_unknown_brand

The last step is the answer. What the next call is follows from the question, the tools and the results so far.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from txagent_train.core.records import TOOL_RAG, Json, ToolCall, Trace
from txagent_train.demo import questions as words
from txagent_train.demo.formulary import Drug, join_words
from txagent_train.demo.questions import FIELD_WORDS, SEARCH_WORDS, misspell, start_sentence
from txagent_train.demo.recorder import ALTERNATIVES, Recorder, pick_candidates
from txagent_train.demo.tools import (
    BRAND_NAME_KEY,
    BRAND_NAMES_TOOL,
    FIELD_TOOLS,
    GENERIC_NAME_KEY,
    GENERIC_NAME_TOOL,
    PHARM_CLASS_KEY,
    SEARCH_TOOLS,
    DemoTools,
    FieldTool,
    retrieve_tools,
)

SCHEDULE: dict[str, int] = {
    "lookup": 20,
    "brand": 6,
    "rag": 3,
    "search": 3,
    "generic_name": 2,
    "brand_names": 1,
    "compare": 2,
    "two_fields": 2,
    "interaction": 1,
    "search_then_lookup": 1,
    "unknown_brand": 1,
    "misspelt": 1,
    "rag_unknown_brand": 1,
    "out_of_scope": 1,
}
"""How many traces of each kind there are in one round of all kinds."""

TRAINING_SCHEDULE: dict[str, int] = {
    **SCHEDULE,
    "lookup": 15,
    "brand": 7,
    "rag": 6,
    "search": 5,
    "compare": 5,
    "two_fields": 5,
    "interaction": 2,
    "search_then_lookup": 2,
    "unknown_brand": 2,
}
"""The same for training on few traces: what is hard comes more often, plain lookups are learnt at once."""

_RAG_LIMIT = 2
_ATTEMPTS = 500  # fruitless drafts in a row after which the questions count as used up
_INTERACTIONS = next(tool for tool in FIELD_TOOLS if tool.field == "interactions")
_INDICATION = next(tool for tool in SEARCH_TOOLS if tool.field == "conditions")

Item = TypeVar("Item")


def _laps(items: Sequence[Item], rng: random.Random) -> Iterator[Item]:
    """The items again and again, each lap in a new order: even coverage whatever the number taken."""
    while True:
        yield from rng.sample(items, len(items))


def _records(content: Json) -> list[dict[str, Json]]:
    assert isinstance(content, dict)
    records = content["results"]
    assert isinstance(records, list)
    return [record for record in records if isinstance(record, dict)]


def _value(content: Json, key: str) -> str:
    return str(_records(content)[0][key])


class Teacher:
    """Writes traces over the given drugs, the same ones for the same seed.

    A script returns None where its kind does not exist for a drug.
    """

    def __init__(self, drugs: Sequence[Drug], seed: int, schedule: Mapping[str, int] = SCHEDULE) -> None:
        self.schedule = schedule
        self.drugs = tuple(sorted(drugs, key=lambda drug: drug.generic_name))
        self.tools = DemoTools(self.drugs)
        self.rng = random.Random(f"teacher:{seed}")
        self.fields = _laps(FIELD_TOOLS, self.rng)
        self.scripts: dict[str, Callable[[Drug], Trace | None]] = {
            "lookup": self.lookup,
            "compare": self.compare,
            "two_fields": self.two_fields,
            "interaction": self.interaction,
            "search": self.search,
            "generic_name": self.generic_name,
            "brand_names": self.brand_names,
            "brand": self.brand,
            "search_then_lookup": self.search_then_lookup,
            "rag": self.rag,
            "unknown_brand": self.unknown_brand,
            "misspelt": self.misspelt,
            "rag_unknown_brand": self.rag_unknown_brand,
            "out_of_scope": self.out_of_scope,
        }

    def traces(self) -> Iterator[Trace | None]:
        """Drafts without end, round by round through the kinds, each kind going through all drugs.

        None where no drug has the kind that is next.
        """
        kinds = _laps([kind for kind, count in self.schedule.items() for _ in range(count)], self.rng)
        drugs = {kind: _laps(self.drugs, self.rng) for kind in self.schedule}
        for kind in kinds:
            lap = (self.scripts[kind](drug) for drug in islice(drugs[kind], len(self.drugs)))
            yield next((trace for trace in lap if trace is not None), None)

    # ---- parts of scripts ----

    def _say(self, templates: Sequence[str], **values: str) -> str:
        return self.rng.choice(templates).format(**values)

    def _ask(self, tool: FieldTool, drug: str) -> str:
        return self._say(FIELD_WORDS[tool.field].questions, drug=drug)

    def _start(self, kind: str, question: str, *needed: str) -> Recorder:
        return Recorder(kind, question, self.tools, pick_candidates(needed, self.rng))

    def _look_up(self, run: Recorder, tool: FieldTool, name: str, thought: str) -> Json:
        thought = thought.format(noun=FIELD_WORDS[tool.field].noun, drug=name)
        return run.step(thought, ToolCall(tool.name, {"drug_name": name}))[0]

    def _resolve(self, run: Recorder, name: str, thought: str) -> str:
        """The generic name of a name, by the tool for it."""
        return _value(
            run.step(thought.format(name=name), ToolCall(GENERIC_NAME_TOOL, {"drug_name": name}))[0], GENERIC_NAME_KEY
        )

    def _retrieve(self, run: Recorder, tool: FieldTool) -> None:
        noun = FIELD_WORDS[tool.field].noun
        call = ToolCall(TOOL_RAG, {"description": noun, "limit": _RAG_LIMIT})
        run.step(words.RAG_THOUGHT.format(noun=noun), call)

    def _give_field(self, run: Recorder, tool: FieldTool, content: Json) -> Trace:
        """The last step: the field of the drug that was looked up."""
        drug, text = _value(content, GENERIC_NAME_KEY), _value(content, tool.key)
        answer = start_sentence(FIELD_WORDS[tool.field].answer.format(drug=drug, text=text))
        return self._give(run, answer, gold=text, entities=[drug])

    def _give(self, run: Recorder, answer: str, *, gold: str, entities: Sequence[str]) -> Trace:
        return run.finish(words.ANSWER_THOUGHT, answer, gold=gold, entities=entities)

    # ---- scripts ----

    def lookup(self, drug: Drug) -> Trace:
        tool = next(self.fields)
        run = self._start("lookup", self._ask(tool, drug.generic_name), tool.name)
        return self._give_field(run, tool, self._look_up(run, tool, drug.generic_name, words.LOOKUP_THOUGHT))

    def compare(self, drug: Drug) -> Trace | None:
        others = [item.generic_name for item in self.drugs if item is not drug]
        if not others:
            return None
        tool, names = next(self.fields), [drug.generic_name, self.rng.choice(others)]
        said = {"noun": FIELD_WORDS[tool.field].noun, "first": names[0], "second": names[1]}
        run = self._start("compare", self._say(words.COMPARE_QUESTIONS, **said), tool.name)
        contents = run.step(
            words.COMPARE_THOUGHT.format(**said), *(ToolCall(tool.name, {"drug_name": name}) for name in names)
        )
        texts = [_value(content, tool.key) for content in contents]
        gold = f"{texts[0]}; {names[1]}: {texts[1]}"
        return self._give(run, f"{start_sentence(names[0])}: {gold}.", gold=gold, entities=names)

    def two_fields(self, drug: Drug) -> Trace | None:
        tools = [next(self.fields), next(self.fields)]
        if tools[0] is tools[1] or tools[1].name in ALTERNATIVES.get(tools[0].name, ()):
            return None  # one call could give both
        nouns = [FIELD_WORDS[tool.field].noun for tool in tools]
        said = {"drug": drug.generic_name, "first": nouns[0], "second": nouns[1]}
        run = self._start("two_fields", self._say(words.TWO_FIELDS_QUESTIONS, **said), *(tool.name for tool in tools))
        contents = run.step(
            words.TWO_FIELDS_THOUGHT.format(**said),
            *(ToolCall(tool.name, {"drug_name": drug.generic_name}) for tool in tools),
        )
        texts = [_value(content, tool.key) for content, tool in zip(contents, tools, strict=True)]
        gold = f"{texts[0]}; {nouns[1]}: {texts[1]}"
        answer = f"{start_sentence(drug.generic_name)} {nouns[0]}: {gold}."
        return self._give(run, answer, gold=gold, entities=[drug.generic_name])

    def interaction(self, drug: Drug) -> Trace | None:
        """Two labels, of which one names the class of the other drug."""
        partners = [item for item in self.drugs if item is not drug and drug.interaction_with(item)]
        if not partners:
            return None
        names = [drug.generic_name, self.rng.choice(partners).generic_name]
        self.rng.shuffle(names)
        said = {"first": names[0], "second": names[1], "noun": FIELD_WORDS["interactions"].noun}
        run = self._start("interaction", self._say(words.INTERACTION_QUESTIONS, **said), _INTERACTIONS.name)
        contents = run.step(
            words.COMPARE_THOUGHT.format(**said),
            *(ToolCall(_INTERACTIONS.name, {"drug_name": name}) for name in names),
        )
        for label, other in ((0, 1), (1, 0)):
            plural = f"{_value(contents[other], PHARM_CLASS_KEY)}s"
            if plural in _value(contents[label], _INTERACTIONS.key):
                answer = f"{start_sentence(names[label])} interacts with {plural} such as {names[other]}."
                return self._give(run, answer, gold=plural, entities=names)
        raise AssertionError(f"neither label of {names} names the other's class")

    def search(self, drug: Drug) -> Trace | None:
        tool = self.rng.choice((_INDICATION, self.rng.choice(SEARCH_TOOLS)))
        entries = drug.entries(tool.field)
        if not entries:
            return None
        term = self.rng.choice(entries)
        search_words = SEARCH_WORDS[tool.field]
        run = self._start("search", self._say(search_words.questions, term=term), tool.name)
        thought = words.SEARCH_THOUGHT.format(noun=search_words.noun)
        content = run.step(thought, ToolCall(tool.name, {tool.argument: term}))[0]
        names = [str(record[GENERIC_NAME_KEY]) for record in _records(content)]
        gold = join_words(names)
        return self._give(run, f"These drugs were found: {gold}.", gold=gold, entities=names)

    def search_then_lookup(self, drug: Drug) -> Trace | None:
        tool, term = next(self.fields), self.rng.choice(drug.conditions)
        if tool.field == _INDICATION.field:
            return None
        question = self._say(words.SEARCH_THEN_LOOKUP_QUESTIONS, term=term, noun=FIELD_WORDS[tool.field].noun)
        run = self._start("search_then_lookup", question, _INDICATION.name, tool.name)
        thought = words.SEARCH_THOUGHT.format(noun=SEARCH_WORDS["conditions"].noun)
        found = run.step(thought, ToolCall(_INDICATION.name, {_INDICATION.argument: term}))[0]
        names = [str(record[GENERIC_NAME_KEY]) for record in _records(found)]
        trace = self._give_field(run, tool, self._look_up(run, tool, names[0], words.FOUND_DRUG_THOUGHT))
        return dataclasses.replace(trace, entities=tuple(names))

    def generic_name(self, drug: Drug) -> Trace:
        brand = self.rng.choice(drug.brand_names)
        run = self._start("generic_name", self._say(words.GENERIC_NAME_QUESTIONS, brand=brand), GENERIC_NAME_TOOL)
        generic = self._resolve(run, brand, words.GENERIC_NAME_THOUGHT)
        return self._give(run, f"The generic name of {brand} is {generic}.", gold=generic, entities=[generic])

    def brand_names(self, drug: Drug) -> Trace:
        name = drug.generic_name
        run = self._start("brand_names", self._say(words.BRAND_NAMES_QUESTIONS, drug=name), BRAND_NAMES_TOOL)
        thought = words.BRAND_NAMES_THOUGHT.format(name=name)
        content = run.step(thought, ToolCall(BRAND_NAMES_TOOL, {"drug_name": name}))[0]
        brands = _records(content)[0][BRAND_NAME_KEY]
        assert isinstance(brands, list)
        gold = join_words([str(brand) for brand in brands])
        return self._give(run, f"{start_sentence(name)} is sold as {gold}.", gold=gold, entities=[name])

    def brand(self, drug: Drug) -> Trace:
        """The question says that the name is a brand: resolve it first."""
        tool, brand = next(self.fields), self.rng.choice(drug.brand_names)
        run = self._start("brand", self._ask(tool, f"the brand {brand}"), tool.name, GENERIC_NAME_TOOL)
        generic = self._resolve(run, brand, words.BRAND_THOUGHT)
        return self._give_field(run, tool, self._look_up(run, tool, generic, words.NEXT_LOOKUP_THOUGHT))

    def unknown_brand(self, drug: Drug) -> Trace:
        """A brand that is not called one: the lookup is empty, the generic name follows."""
        return self._recover("unknown_brand", self.rng.choice(drug.brand_names))

    def misspelt(self, drug: Drug) -> Trace | None:
        """A misspelt name that the tool for generic names still takes for this drug."""
        wrong = misspell(drug.generic_name, self.rng)
        found = _records(self.tools.call(ToolCall(GENERIC_NAME_TOOL, {"drug_name": wrong})).content)
        known = any(wrong.casefold() == name.casefold() for item in self.drugs for name in item.names)
        if known or found != [{GENERIC_NAME_KEY: drug.generic_name}]:
            return None
        return self._recover("misspelt", wrong)

    def _recover(self, kind: str, name: str) -> Trace:
        tool = next(self.fields)
        run = self._start(kind, self._ask(tool, name), tool.name, GENERIC_NAME_TOOL)
        return self._look_up_and_recover(run, tool, name, words.LOOKUP_THOUGHT)

    def _look_up_and_recover(self, run: Recorder, tool: FieldTool, name: str, thought: str) -> Trace:
        empty = self._look_up(run, tool, name, thought)
        assert not _records(empty)
        generic = self._resolve(run, name, words.NOT_FOUND_THOUGHT)
        return self._give_field(run, tool, self._look_up(run, tool, generic, words.NEXT_LOOKUP_THOUGHT))

    def rag(self, drug: Drug) -> Trace:
        tool = next(self.fields)
        run = self._start_with_rag("rag", tool, drug.generic_name)
        self._retrieve(run, tool)
        return self._give_field(run, tool, self._look_up(run, tool, drug.generic_name, words.NEW_TOOL_THOUGHT))

    def rag_unknown_brand(self, drug: Drug) -> Trace:
        tool, name = next(self.fields), self.rng.choice(drug.brand_names)
        run = self._start_with_rag("rag_unknown_brand", tool, name, GENERIC_NAME_TOOL)
        self._retrieve(run, tool)
        return self._look_up_and_recover(run, tool, name, words.NEW_TOOL_THOUGHT)

    def _start_with_rag(self, kind: str, tool: FieldTool, name: str, *also_needed: str) -> Recorder:
        """The tool of the field is not shown, and neither is anything else that Tool_RAG will bring.

        Two tools at first: Tool_RAG brings two more, and these traces are the longest.
        """
        absent = [spec.name for spec in retrieve_tools(FIELD_WORDS[tool.field].noun, _RAG_LIMIT)]
        assert tool.name in absent
        needed = (TOOL_RAG, *also_needed)
        candidates = pick_candidates(needed, self.rng, absent=absent, most=2 - len(needed))
        return Recorder(kind, self._ask(tool, name), self.tools, candidates)

    def out_of_scope(self, drug: Drug) -> Trace:
        """No tool can answer: say so, and call none."""
        topic = self.rng.choice(list(words.OUT_OF_SCOPE_QUESTIONS))
        name = drug.generic_name
        run = self._start("out_of_scope", self._say(words.OUT_OF_SCOPE_QUESTIONS[topic], drug=name))
        answer = f"The tools do not give the {topic} of {name}."
        thought = words.OUT_OF_SCOPE_THOUGHT.format(topic=topic)
        return run.finish(thought, answer, gold=f"do not give the {topic}", entities=[name])


def demo_traces(
    drugs: Sequence[Drug],
    *,
    n: int,
    seed: int,
    id_prefix: str = "demo",
    schedule: Mapping[str, int] = SCHEDULE,
) -> list[Trace]:
    """``n`` traces over ``drugs``, no question twice; the kinds come as often as ``schedule`` says.

    Raises:
        ValueError: the drugs do not give ``n`` different questions.
    """
    traces: list[Trace] = []
    asked: set[str] = set()
    fruitless = 0
    for draft in Teacher(drugs, seed, schedule).traces():
        if len(traces) == n:
            break
        if draft is None or draft.question in asked:
            fruitless += 1
            if fruitless > _ATTEMPTS:
                raise ValueError(f"{len(drugs)} drugs give {len(traces)} different questions, not {n}")
            continue
        fruitless = 0
        asked.add(draft.question)
        traces.append(dataclasses.replace(draft, id=f"{id_prefix}-{len(traces):05d}"))
    return traces

"""Tools over the formulary, with the names and arguments of ToolUniverse 0.1.4 (MIT licence).

Differences from the originals, all to save tokens: the optional ``limit`` and ``skip`` arguments and the
descriptions of arguments are left out, a few descriptions are shortened, ``required`` is a JSON schema list, and a
result holds the generic name and the field asked for.

    by drug name       {"results": [{"generic_name": "lisinopril", "pregnancy": "..."}]}
    drugs by a fact    {"results": [{"generic_name": "lisinopril"}, ...]}      at most three, by name
    nothing found      {"results": []}
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txagent_train.agent.tools import PythonTools, ToolFunction, ToolOutcome
from txagent_train.core.records import TOOL_RAG, Json, ToolCall, ToolSpec
from txagent_train.demo.formulary import Drug

GENERIC_NAME_TOOL = "get_drug_generic_name"
BRAND_NAMES_TOOL = "get_brand_name_generic_name"
GENERIC_NAME_KEY = "generic_name"
BRAND_NAME_KEY = "brand_name"
PHARM_CLASS_KEY = "pharm_class"

_MAX_RESULTS = 3
_MIN_SIMILARITY = 0.75  # of difflib's ratio: one or two wrong letters in a name of usual length


@dataclass(frozen=True, slots=True)
class FieldTool:
    """A tool that gives one field of a drug's label. ``key`` is the field's name in openFDA."""

    name: str
    description: str
    field: str
    key: str


@dataclass(frozen=True, slots=True)
class SearchTool:
    """A tool that finds the drugs whose ``field`` has a text as an entry or, where none has, holds it somewhere."""

    name: str
    description: str
    argument: str
    field: str


FIELD_TOOLS = (
    FieldTool(
        "get_indications_by_drug_name",
        "Retrieve indications and usage information based on a specific drug name.",
        "conditions",
        "indications_and_usage",
    ),
    FieldTool(
        "get_mechanism_of_action_by_drug_name",
        "Retrieve the mechanism of action information for a specific drug.",
        "mechanism",
        "mechanism_of_action",
    ),
    FieldTool(
        "get_contraindications_by_drug_name",
        "Retrieve contraindications information based on the drug name.",
        "contraindications",
        "contraindications",
    ),
    FieldTool(
        "get_boxed_warning_info_by_drug_name",
        "Retrieve boxed warning information for a specific drug.",
        "boxed_warning",
        "boxed_warning",
    ),
    FieldTool(
        "get_pregnancy_effects_info_by_drug_name",
        "Retrieve information about the effects on pregnancy for a specific drug.",
        "pregnancy",
        "pregnancy",
    ),
    FieldTool(
        "get_pediatric_use_info_by_drug_name",
        "Retrieve pediatric use information based on drug names.",
        "pediatric_use",
        "pediatric_use",
    ),
    FieldTool(
        "get_geriatric_use_info_by_drug_name",
        "Retrieve information about geriatric use based on the drug name.",
        "geriatric_use",
        "geriatric_use",
    ),
    FieldTool(
        "get_population_use_info_by_drug_name",
        "Retrieve the use of a drug in specific populations (e.g. renal impairment).",
        "renal_impairment",
        "use_in_specific_populations",
    ),
    FieldTool(
        "get_drug_interactions_by_drug_name",
        "Retrieve drug interactions based on the specified drug name.",
        "interactions",
        "drug_interactions",
    ),
    FieldTool(
        "get_adverse_reactions_by_drug_name",
        "Retrieve adverse reactions information based on the drug name.",
        "adverse_reactions",
        "adverse_reactions",
    ),
    FieldTool(
        "get_pharmacokinetics_by_drug_name",
        "Retrieve pharmacokinetics information (e.g. metabolism) for a specific drug.",
        "pharmacokinetics",
        "pharmacokinetics",
    ),
    FieldTool(
        "get_route_info_by_drug_name",
        "Retrieve the route of administration information based on the drug name.",
        "route",
        "route",
    ),
)

SEARCH_TOOLS = (
    SearchTool(
        "get_drug_names_by_indication",
        "Retrieve a list of drug names based on a specific indication or usage.",
        "indication",
        "conditions",
    ),
    SearchTool(
        "get_drug_names_by_mechanism_of_action",
        "Retrieve drug names based on the specified mechanism of action information.",
        "mechanism_info",
        "mechanism",
    ),
    SearchTool(
        "get_drug_names_by_boxed_warning",
        "Retrieve drug names that have specific boxed warnings.",
        "warning_text",
        "boxed_warning",
    ),
    SearchTool(
        "get_drug_names_by_contraindications",
        "Retrieve drug names based on specific contraindications information.",
        "contraindication_info",
        "contraindications",
    ),
    SearchTool(
        "get_drug_names_by_drug_interactions",
        "Retrieve a list of drug names that have the specified drug interactions.",
        "interaction_term",
        "interactions",
    ),
)


def _spec(name: str, text: str, **arguments: str) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=text,
        parameters={
            "type": "object",
            "properties": {argument: {"type": kind} for argument, kind in arguments.items()},
            "required": list(arguments),
        },
    )


TOOL_SPECS: tuple[ToolSpec, ...] = (
    *(_spec(tool.name, tool.description, drug_name="string") for tool in FIELD_TOOLS),
    _spec(
        GENERIC_NAME_TOOL, "Get the drug's generic name based on the drug's generic or brand name.", drug_name="string"
    ),
    _spec(BRAND_NAMES_TOOL, "Retrieve the brand names of a drug from its generic name.", drug_name="string"),
    *(_spec(tool.name, tool.description, **{tool.argument: "string"}) for tool in SEARCH_TOOLS),
)

RAG_SPEC = _spec(
    TOOL_RAG,
    "Retrieve related tools based on the provided description.",
    description="string",
    limit="integer",
)


class DemoTools:
    """A ToolExecutor over the given drugs, and over no others.

    A lookup by name knows generic names only. ``get_drug_generic_name`` knows brand names too, and takes the nearest
    name for one that is misspelt.
    """

    def __init__(self, drugs: Sequence[Drug]) -> None:
        self._drugs = tuple(sorted(drugs, key=lambda drug: drug.generic_name))
        self._by_generic = {drug.generic_name.casefold(): drug for drug in self._drugs}
        self._by_any_name = {name.casefold(): drug for drug in self._drugs for name in drug.names}
        functions: dict[str, ToolFunction] = {
            **{tool.name: self._lookup(tool) for tool in FIELD_TOOLS},
            **{tool.name: self._search(tool) for tool in SEARCH_TOOLS},
            GENERIC_NAME_TOOL: self._generic_name,
            BRAND_NAMES_TOOL: self._brand_names,
            TOOL_RAG: self._retrieve,
        }
        self._tools = PythonTools((RAG_SPEC, *TOOL_SPECS), functions)

    def specs(self) -> Sequence[ToolSpec]:
        """Every tool, Tool_RAG first."""
        return self._tools.specs()

    def call(self, call: ToolCall) -> ToolOutcome:
        """Run one call; a call that cannot be run is an outcome with ``is_error``."""
        return self._tools.call(call)

    def _lookup(self, tool: FieldTool) -> Callable[[str], Json]:
        def lookup(drug_name: str) -> Json:
            drug = self._by_generic.get(drug_name.casefold())
            if drug is None:
                return {"results": []}
            record: dict[str, Json] = {GENERIC_NAME_KEY: drug.generic_name}
            if tool.field == "interactions":  # other labels name this drug by its class only
                record[PHARM_CLASS_KEY] = drug.drug_class
            record[tool.key] = drug.text(tool.field)
            return {"results": [record]}

        return lookup

    def _search(self, tool: SearchTool) -> Callable[..., Json]:
        def search(**arguments: str) -> Json:
            wanted = arguments[tool.argument].casefold()
            entries = {drug: [entry.casefold() for entry in drug.entries(tool.field)] for drug in self._drugs}
            found = [drug for drug in self._drugs if wanted in entries[drug]]
            if not found and wanted:
                found = [drug for drug in self._drugs if any(wanted in entry for entry in entries[drug])]
            return {"results": [{GENERIC_NAME_KEY: drug.generic_name} for drug in found[:_MAX_RESULTS]]}

        return search

    def _generic_name(self, drug_name: str) -> Json:
        close = difflib.get_close_matches(drug_name.casefold(), self._by_any_name, n=1, cutoff=_MIN_SIMILARITY)
        return {"results": [{GENERIC_NAME_KEY: self._by_any_name[name].generic_name} for name in close]}

    def _brand_names(self, drug_name: str) -> Json:
        drug = self._by_generic.get(drug_name.casefold())
        if drug is None:
            return {"results": []}
        return {"results": [{BRAND_NAME_KEY: list(drug.brand_names), GENERIC_NAME_KEY: drug.generic_name}]}

    @staticmethod
    def _retrieve(description: str, limit: int) -> ToolOutcome:
        found = retrieve_tools(description, limit)
        return ToolOutcome([spec.name for spec in found], tools_added=found)


def _words(text: str) -> list[str]:
    return [word.removesuffix("s") for word in re.findall(r"[a-z]+", text.casefold())]


_TOOL_WORDS = {spec.name: frozenset(_words(f"{spec.name} {spec.description}")) for spec in TOOL_SPECS}
_TOOLS_WITH_WORD = Counter(word for words in _TOOL_WORDS.values() for word in words)


def retrieve_tools(description: str, limit: int) -> tuple[ToolSpec, ...]:
    """The ``limit`` tools that fit a description best.

    A tool scores the sum over the words it shares with the description of 1 / (number of tools that have the word);
    ties go to the earlier tool.
    """
    wanted = set(_words(description))

    def score(spec: ToolSpec) -> float:
        # Sorted: a float sum depends on the order, and the order of a set of strings changes from run to run.
        return sum(1 / _TOOLS_WITH_WORD[word] for word in sorted(wanted & _TOOL_WORDS[spec.name]))

    return tuple(sorted(TOOL_SPECS, key=score, reverse=True)[: max(limit, 0)])

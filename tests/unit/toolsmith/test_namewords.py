from __future__ import annotations

import pytest

from tests.support.tool_specs import tool
from txagent_train.toolsmith.namewords import NameWords

GENERIC = tool("get_drug_generic_name", "Retrieve the drug's generic name from a brand name.", drug_name="Brand name.")
RISKS = tool("FDA_get_adverse_reactions_by_drug_name", "Retrieve adverse reactions of a drug.", drug_name="The name.")


@pytest.mark.parametrize(
    ("spec", "name", "lost"),
    [
        (GENERIC, "drug_generic_name_lookup", ()),
        (GENERIC, "find_generic_medicine", ()),
        (GENERIC, "medicinal_product_generic", ()),
        (GENERIC, "from_pharmaceutical_name_retrieve_pharmaceutical", ("generic",)),
        (GENERIC, "get_the_medicinal_product_name", ("generic",)),
        (GENERIC, "brand_name_lookup", ("drug", "generic")),
        (GENERIC, "inn_of_remedy", ()),  # may be a word for it that the lexicon lacks
        (RISKS, "fda_side_effects_of_medicine", ()),
        (RISKS, "drug_reaction_lookup_fda", ("adverse",)),
        (RISKS, "adverse_reactions_by_drug", ("fda",)),
        (RISKS, "fda_adverse_reactions_by_name", ("drug",)),
        (RISKS, "fda_remedy_adverse_reaction_tool", ()),
        (tool("list_cakes", "List cakes of a bakery.", bakery="The bakery."), "enumerate_bakery", ("cake",)),
        (tool("list_cakes", "List cakes of a bakery.", bakery="The bakery."), "show_pastries", ()),
        (tool("esearch", "Finds ids in Entrez databases.", db="Which."), "entrez_database_ids", ()),
        (tool("esearch", "Finds ids in Entrez databases.", db="Which."), "run_entrez", ("esearch",)),
        (tool("get_max_dose", "Highest dose.", drug="The drug."), "maximum_dosage", ()),
        (tool("get", "Get it."), "fetch_it", ()),
        (tool("поиск", "Find."), "find", ()),
    ],
)  # fmt: skip
def test_a_word_of_the_name_stays_or_has_a_synonym(spec: object, name: str, lost: tuple[str, ...]) -> None:
    assert NameWords.of(spec).lost(name) == lost  # type: ignore[arg-type]


def test_a_name_that_is_too_long_may_lose_some_words() -> None:
    words = [f"very{letter * 8}" for letter in "abcdefgh"]
    spec = tool("get_" + "_".join(words), "What it gives.")
    assert NameWords.of(spec).lost("_".join(words[:5])) == ()
    assert NameWords.of(spec).lost("_".join(words[:3])) != ()

"""What is asked and said: question templates, the words of a thought, answer sentences.

The wording decides the next call. A question uses the words of the tool that answers it; "the brand X" asks for the
generic name first, a bare name is looked up as it stands; a search term stands in the question as the tool takes it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldWords:
    """The words for one field. ``{drug}`` may be a name or "the brand X"; ``{text}`` is the field's text.

    ``noun`` is also what Tool_RAG is asked for when the tool of the field is missing.
    """

    noun: str
    questions: tuple[str, ...]
    answer: str


FIELD_WORDS: dict[str, FieldWords] = {
    "conditions": FieldWords(
        "indications",
        (
            "What is {drug} indicated for?",
            "Which indications does {drug} have?",
            "List the indications of {drug}.",
            "For which conditions is {drug} indicated?",
            "What are the indications and usage of {drug}?",
        ),
        "{drug} is indicated for {text}.",
    ),
    "mechanism": FieldWords(
        "mechanism",
        (
            "What is the mechanism of action of {drug}?",
            "By which mechanism does {drug} work?",
            "Explain the mechanism of action of {drug}.",
            "How does {drug} produce its action?",
            "Through what mechanism does {drug} act?",
        ),
        "{drug} {text}.",
    ),
    "contraindications": FieldWords(
        "contraindications",
        (
            "What are the contraindications of {drug}?",
            "When is {drug} contraindicated?",
            "In which situations is {drug} contraindicated?",
            "List the contraindications of {drug}.",
            "Which contraindications does {drug} have?",
        ),
        "Contraindications of {drug}: {text}.",
    ),
    "boxed_warning": FieldWords(
        "boxed warning",
        (
            "Does {drug} carry a boxed warning?",
            "What is the boxed warning of {drug}?",
            "Is there a boxed warning for {drug}?",
            "Check the boxed warning of {drug}.",
            "Which boxed warning does {drug} have?",
        ),
        "The boxed warning of {drug}: {text}.",
    ),
    "pregnancy": FieldWords(
        "pregnancy effects",
        (
            "What does the label of {drug} say about pregnancy?",
            "How should {drug} be handled in pregnancy?",
            "What are the effects of {drug} on pregnancy?",
            "A pregnant patient takes {drug}. What does the label advise?",
            "Is {drug} a concern during pregnancy?",
        ),
        "{drug} in pregnancy: {text}.",
    ),
    "pediatric_use": FieldWords(
        "pediatric use",
        (
            "What is known about the pediatric use of {drug}?",
            "Can children be given {drug}?",
            "What does the label of {drug} say about pediatric use?",
            "Describe the use of {drug} in pediatric patients.",
            "Is {drug} meant for children?",
        ),
        "{drug} in children: {text}.",
    ),
    "geriatric_use": FieldWords(
        "geriatric use",
        (
            "What is known about the geriatric use of {drug}?",
            "How should elderly patients be given {drug}?",
            "What does the label of {drug} say about geriatric use?",
            "Describe the use of {drug} in geriatric patients.",
            "What must be watched when older adults take {drug}?",
        ),
        "{drug} in older adults: {text}.",
    ),
    "renal_impairment": FieldWords(
        "use in renal impairment",
        (
            "How is {drug} used in patients with renal impairment?",
            "What does the label of {drug} say about renal impairment?",
            "My patient has renal impairment. How is {drug} used?",
            "How should {drug} be dosed in renal impairment?",
            "Does renal impairment change the use of {drug}?",
        ),
        "{drug} in renal impairment: {text}.",
    ),
    "interactions": FieldWords(
        "drug interactions",
        (
            "Which drug interactions does {drug} have?",
            "What does {drug} interact with?",
            "List the drug interactions of {drug}.",
            "What are the main drug interactions of {drug}?",
            "With what does {drug} interact?",
        ),
        "{drug} interacts with {text}.",
    ),
    "adverse_reactions": FieldWords(
        "adverse reactions",
        (
            "What are the common adverse reactions of {drug}?",
            "Which adverse reactions does {drug} cause?",
            "List the adverse reactions of {drug}.",
            "What adverse reactions should a patient on {drug} expect?",
            "Which side effects does {drug} have?",
        ),
        "Common adverse reactions of {drug}: {text}.",
    ),
    "pharmacokinetics": FieldWords(
        "pharmacokinetics",
        (
            "What are the pharmacokinetics of {drug}?",
            "How does the body metabolise {drug}?",
            "Summarise the pharmacokinetics of {drug}.",
            "Describe the metabolism of {drug}.",
            "What is known about the metabolism of {drug}?",
        ),
        "{drug} is {text}.",
    ),
    "route": FieldWords(
        "route of administration",
        (
            "What is the route of administration of {drug}?",
            "By which route is {drug} given?",
            "How is {drug} administered?",
            "Which route of administration does {drug} have?",
            "Name the route of administration of {drug}.",
        ),
        "{drug} is given by this route: {text}.",
    ),
}


@dataclass(frozen=True, slots=True)
class SearchWords:
    """The words for a search of drugs by a fact; ``{term}`` is the argument of the call, word for word."""

    questions: tuple[str, ...]
    noun: str


SEARCH_WORDS: dict[str, SearchWords] = {
    "conditions": SearchWords(
        (
            "Which drugs are indicated for {term}?",
            "Name drugs with the indication {term}.",
            "Which medicines have the indication {term}?",
        ),
        "indication",
    ),
    "mechanism": SearchWords(
        (
            'Which drugs have the mechanism of action "{term}"?',
            'Name drugs whose mechanism is "{term}".',
            'Find drugs with the mechanism "{term}".',
        ),
        "mechanism",
    ),
    "boxed_warning": SearchWords(
        (
            'Which drugs have the boxed warning "{term}"?',
            'Name drugs with a boxed warning of "{term}".',
            'Find drugs whose boxed warning is "{term}".',
        ),
        "boxed warning",
    ),
    "contraindications": SearchWords(
        (
            'Which drugs have the contraindication "{term}"?',
            'Name drugs with the contraindication "{term}".',
            'Find drugs whose contraindication is "{term}".',
        ),
        "contraindication",
    ),
    "interactions": SearchWords(
        (
            "Which drugs have drug interactions with {term}?",
            "Name drugs that interact with {term}.",
            "Find drugs with an interaction with {term}.",
        ),
        "interaction",
    ),
}

COMPARE_QUESTIONS = (
    "Compare the {noun} of {first} and {second}.",
    "How do {first} and {second} differ in {noun}?",
    "Give the {noun} of {first} and of {second}.",
)
TWO_FIELDS_QUESTIONS = (
    "What are the {first} and the {second} of {drug}?",
    "Give me the {first} and the {second} of {drug}.",
    "For {drug}, I need the {first} and the {second}.",
)
INTERACTION_QUESTIONS = (
    "Which listed interaction concerns {first} and {second} together?",
    "A patient takes {first} and {second}. Which interaction is listed?",
    "Check the drug interactions of {first} with {second}.",
)
SEARCH_THEN_LOOKUP_QUESTIONS = (
    "Find a drug indicated for {term} and give its {noun}.",
    "Name a drug with the indication {term}, then its {noun}.",
    "Pick a drug that is indicated for {term} and report its {noun}.",
)
GENERIC_NAME_QUESTIONS = (
    "What is the generic name of the brand {brand}?",
    "Which generic name belongs to the brand {brand}?",
    "Give the generic name of the brand {brand}.",
    "Under which generic name is the brand {brand} known?",
)
BRAND_NAMES_QUESTIONS = (
    "Which brand names does {drug} have?",
    "Under which brand names is {drug} sold?",
    "List the brand names of {drug}.",
    "What are the brand names of {drug}?",
)
OUT_OF_SCOPE_QUESTIONS = {
    "price": ("How much does {drug} cost?", "What is the price of {drug}?"),
    "colour": ("What colour is {drug}?", "Which colour do the packs of {drug} have?"),
    "discoverer": ("Who discovered {drug}?", "Which chemist discovered {drug}?"),
    "stock": ("Which pharmacy near me has {drug} in stock?", "Is {drug} in stock at my pharmacy?"),
    "sales": ("How many packs of {drug} were sold last year?", "What are the yearly sales of {drug}?"),
}

# One sentence for each thought, and the first words tell its kind: with several wordings the greedy choice would fall
# on the kind with the fewest of them, and not on the likeliest kind.
LOOKUP_THOUGHT = "I look up the {noun} of {drug}."
NEXT_LOOKUP_THOUGHT = "The generic name is {drug}; I look up its {noun}."
FOUND_DRUG_THOUGHT = "The first drug found is {drug}; I look up its {noun}."
BRAND_THOUGHT = "The brand {name} has no label of its own; I look up its generic name."
NOT_FOUND_THOUGHT = "Nothing is listed for {name}; I look up its generic name."
RAG_THOUGHT = "No tool here gives the {noun}; I search for one."
NEW_TOOL_THOUGHT = "Now I look up the {noun} of {drug}."
COMPARE_THOUGHT = "Two calls: the {noun} of {first} and of {second}."
TWO_FIELDS_THOUGHT = "Two calls: the {first} and the {second} of {drug}."
SEARCH_THOUGHT = "I search for drugs by {noun}."
GENERIC_NAME_THOUGHT = "I look up the generic name of {name}."
BRAND_NAMES_THOUGHT = "I look up the brand names of {name}."
OUT_OF_SCOPE_THOUGHT = "None of the tools gives the {topic} of a drug, and I must not guess."
ANSWER_THOUGHT = "This answers the question."


def start_sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def misspell(name: str, rng: random.Random) -> str:
    """The name with one slip of the pen inside it: a letter doubled, left out, or swapped with the next."""
    while True:
        place = rng.randrange(1, len(name) - 2)
        slip = rng.choice(("double", "drop", "swap"))
        if slip == "double":
            wrong = name[: place + 1] + name[place:]
        elif slip == "drop":
            wrong = name[:place] + name[place + 1 :]
        else:
            wrong = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        if wrong != name:
            return wrong

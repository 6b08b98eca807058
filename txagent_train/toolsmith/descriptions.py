"""Other descriptions of tools and arguments, from the sentences of the old ones.

The first sentence is what the tool does. Where it begins with a verb that is known, it is said anew in one of many
registers; what stands behind the verb is kept but for synonyms. Other first sentences are only led into. The
sentences that follow keep their words, but for synonyms and the verb that begins one, and change places; one that may
lean on the sentence before it goes with it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from txagent_train.core.records import ToolSpec
from txagent_train.data.mentions import Word, is_identifier, replace_words
from txagent_train.toolsmith.lexicon import GENERIC, SYNONYMS, VERB_CLASSES
from txagent_train.toolsmith.literals import Literals
from txagent_train.toolsmith.nameparts import CLASS_OF, NameParts, described_verb
from txagent_train.toolsmith.synonyms import Choices, argument_description, properties
from txagent_train.toolsmith.words import STOP_WORDS, capitalised, one_line, sentences, stem

# v: to look up, vs: looks up, ving: looking up, o: what is looked up. A capital asks for one.
_REGISTERS = (
    "{V} {o}.",
    "{Vs} {o}.",
    "This tool {vs} {o}.",
    "{Ving} {o}.",
    "Use this to {v} {o}.",
    "A function for {ving} {o}.",
    "Need to {v} {o}? Call this tool.",
    "Lets you {v} {o}.",
    "Call this function in order to {v} {o}.",
    "The purpose of this function is to {v} {o}.",
    "How can one {v} {o}? With this tool.",
    "Serves to {v} {o}.",
    "Service that {vs} {o}.",
    "Choose this whenever the task is to {v} {o}.",
    "Designed to {v} {o}.",
    "If you have to {v} {o}, this is the tool.",
    "Please use this function when you wish to {v} {o}.",
    "Task: {v} {o}.",
    "What it does: {vs} {o}.",
    "Enables the caller to {v} {o}.",
)
_NOUN_REGISTERS = (
    "{O}.",
    "Looking for {o}? Call this tool.",
    "Gives access to {o}.",
    "Returns {o}.",
    "Output: {o}.",
    "The answer of this tool consists of {o}.",
)
"""For verbs that bring something: the thing alone."""
_SPLIT_REGISTERS = (
    "Given {y}, {v} {x}.",
    "From {y} to {x}.",
    "Input: {y}. Output: {x}.",
    "Takes {y} and {vs} {x}.",
    "With {y} in hand, {v} {x}.",
    "Maps {y} to {x}.",
    "{Y} in, {x} out.",
    "Starting with {y}, this tool {vs} {x}.",
    "You supply {y}; the tool {vs} {x}.",
    "For {y}, {v} {x}.",
    "Which {bare} belong to {y}? This tool answers that.",
)
"""Where the sentence says from what (y) the tool gets what it brings (x)."""
_OPENINGS = (
    "", "What it does: ", "Purpose: ", "In short: ", "Summary: ", "About this tool: ", "Function: ", "Overview: ",
    "Scope: ", "Tool description: ", "Capability: ", "To the point: ", "Role: ", "Here is what the tool offers. ",
    "Use it for the following. ",
)  # fmt: skip
_CLOSINGS = (
    " Call this tool for that.", " That is its task.", " This is a callable function.", " Use it when this is needed.",
    " Meant to be called by an agent.",
)  # fmt: skip
_TAILS = (
    "", "", "", "", "Needs {}.", "Required input: {}.", "Takes {}.", "Pass {}.", "Expects {}.", "Call it with {}.",
    "The caller provides {}.", "Arguments that must be given: {}.",
)  # fmt: skip
_ARGUMENT_LEADS = (
    "{}", "{}", "{}", "Here goes: {}", "Expected: {}", "To be given: {}", "Meaning: {}", "Input value: {}",
    "{} Set by the caller.", "Provide this: {}", "Stands for: {}", "What to pass: {}",
)  # fmt: skip
_SPLIT = (
    re.compile(r"(?P<x>[^,;:()]+?) based on (?P<y>(?!its |their )(?:(?!, (?:which|that|such|including)\b)[^;:()])+)"),
    re.compile(
        r"(?P<x>[^,;:()]+?) for "
        r"(?P<y>(?:a|an|the) (?:specific|given|specified|certain) (?:(?! (?:by|using|based|from) )[^,;:()])+)"
    ),
    re.compile(r"(?P<x>[^,;:()]+?) (?:by|using|from) (?P<y>(?!its |their )[^,;:()]+)"),
)
_BRINGS = ("retrieve", "search", "list")
_LEANING = re.compile(
    r"(?:The|This|That|These|Those|It|They|Its|Their|But|And|Or|Also|Then|Note|However|Such|If|For|Example|Here|There|"
    r"Both|Each|Either|Otherwise|Similarly|Instead|Unlike|Else|When|While|First|Second|Next|Finally|Thus|So|Hence|"
    r"Same|Other|Others|Another|In|At|By|With|As|More|Only|Additionally|Furthermore|Once|After|Before|Because|Since|To)\b"
)
"""How a sentence begins that may speak of the one before it."""
_TELLING = {
    "returns": ("return", "give", "provide", "supply", "deliver"),
    "provides": ("provide", "give", "supply", "offer"),
    "gives": ("give", "provide", "supply"),
    "reports": ("report", "state"),
    "supports": ("support", "handle"),
    "requires": ("require", "need"),
    "uses": ("use", "employ"),
    "includes": ("include", "contain"),
    "accepts": ("accept", "take"),
}
"""Verbs with which a sentence says what the tool does, and those that say the same."""
_TELLERS = ("{Vs} {o}", "{Vs} {o}", "It {vs} {o}", "The tool {vs} {o}", "What it {vs}: {o}", "This function {vs} {o}")
_SEARCHED = ("search", "query", "browse", "explore")
_NUMBER_OF = re.compile(r"(?:The )?(?:maximum |max )?number of (?P<what>.+) to (?P<do>\w+)\.?", re.IGNORECASE)
_SECOND_VERB = re.compile(r"(?:,|\band|\bor|\bthen) (\w+)(?= (?:the|a|an|its|their|all|them|it)\b)")
_ARTICLE = re.compile(r"(?:The|A|An) ")
_DOUBLED = frozenset({"get", "plot", "map", "submit", "stop", "spot", "scan", "run", "plan"})


def write_description(
    spec: ToolSpec, names: Mapping[str, str], choices: Choices, rng: random.Random, version: int, *, attempt: int = 0
) -> str:
    """Another description of a tool. ``names`` are the new names of the tool and of its arguments, by the old ones."""
    text = one_line(spec.description) or _from_name(spec)
    first, *rest = sentences(text) or [""]
    parts = [_first_sentence(first, choices, rng, version, attempt)]
    rest = [_next_sentence(sentence, choices, rng) for sentence in _reordered(rest, rng)]
    required = spec.parameters.get("required")
    given = [names.get(name, name) for name in required if isinstance(name, str)] if isinstance(required, list) else []
    tail = rng.choice(_TAILS) if given and len(given) <= 4 else ""
    written = _renamed(" ".join([*parts, *rest]), names, choices.literals)
    return f"{written} {tail.format(_listed(given))}" if tail else written


def write_argument_descriptions(
    spec: ToolSpec, names: Mapping[str, str], choices: Choices, rng: random.Random
) -> dict[str, str]:
    """Another description of each argument; what has none keeps none."""
    literals = choices.literals
    found = {name: one_line(argument_description(schema)) for name, schema in properties(spec).items()}
    return {
        name: _renamed(_argument(text, choices, rng), names, literals) if text else "" for name, text in found.items()
    }


def _listed(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _renamed(text: str, names: Mapping[str, str], literals: Literals) -> str:
    words = {old: Word(new, quoted=not is_identifier(old)) for old, new in names.items() if new != old}
    # A value of the schema is no mention of what is named like it.
    parts = (part if is_value else replace_words(part, words)[0] for part, is_value in literals.parts(text))
    return "".join(parts)


def _from_name(spec: ToolSpec) -> str:
    parts = NameParts.of(spec)
    verb = VERB_CLASSES[parts.verb_class][0] if parts.verb_class else ""
    by = ["by", *parts.key] if parts.key else []
    return capitalised(" ".join(word for word in (verb, *parts.subject, *by, *parts.prefix) if word)) + "."


def _first_sentence(sentence: str, choices: Choices, rng: random.Random, version: int, attempt: int) -> str:
    verb, _, behind = sentence.partition(" ")
    verb_class = described_verb(sentence)
    behind = behind.rstrip().removesuffix(".")
    whole = "\n" in sentence or behind.endswith(("!", "?", ":")) or verb in choices.literals.values
    if not verb_class or not behind or whole:
        return _framed(choices.apply(sentence), choices.literals, rng, version + attempt, attempt)
    splits = [] if _does_more(behind) else _splits(behind, choices.literals)
    # What is searched for something is neither found nor discovered itself.
    verbs = _SEARCHED if verb_class == "search" and " for " in behind else VERB_CLASSES[verb_class]
    forms = _verb_forms(rng.choice(verbs))
    registers: list[str] = list(_REGISTERS)
    if verb_class in _BRINGS and not _does_more(behind):
        registers += _NOUN_REGISTERS
        registers += 2 * _SPLIT_REGISTERS if splits else ()
    # Each version of a tool gets its own register: a step that shares no factor with their number meets all of them.
    register = registers[((version + attempt) * _step(len(registers)) + rng.randint(0, 2)) % len(registers)]
    words = forms | {"o": choices.apply(behind), "O": capitalised(choices.apply(behind))}
    if splits:
        x, y = (choices.apply(splits[0][name]) for name in ("x", "y"))
        bare = re.sub(r"^(?:the|a|an|all) ", "", x)
        words |= {"x": x, "y": y, "Y": capitalised(y), "bare": bare}
    return register.format(**words)


def _reordered(rest: Sequence[str], rng: random.Random) -> list[str]:
    """The sentences behind the first in another order; what leans on the first stays behind it."""
    groups: list[list[str]] = [[]]
    for sentence in rest:
        if _LEANING.match(sentence) or not sentence.endswith(".") or (groups[-1] and not groups[-1][-1].endswith(".")):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    behind_first, *others = groups
    rng.shuffle(others)
    return [*behind_first, *(sentence for group in others for sentence in group)]


def _next_sentence(sentence: str, choices: Choices, rng: random.Random) -> str:
    """A sentence behind the first; one that says what the tool does may say it with another verb."""
    first, _, behind = sentence.partition(" ")
    verbs = _TELLING.get(first.lower()) if first.istitle() else None
    if (
        not verbs
        or not behind
        or "\n" in behind
        or any(start == 0 for start, _ in choices.literals.protected(sentence))
    ):
        return choices.apply(sentence)
    teller = rng.choice(_TELLERS if not _does_more(behind) else _TELLERS[:4])
    return teller.format(**_verb_forms(rng.choice(verbs)), o=choices.apply(behind))


def _does_more(behind: str) -> bool:
    """Whether a second verb follows ("a page and return its title"): then the rest is not one thing that is brought."""
    return any(CLASS_OF.get(stem(word)) for word in _SECOND_VERB.findall(behind))


def _splits(behind: str, literals: Literals) -> list[re.Match[str]]:
    """The ways to take a sentence apart: what the tool brings, and from what."""
    kept = literals.protected(behind)

    def cuts(match: re.Match[str]) -> bool:
        return any(start < match.end("x") < end or start < match.start("y") < end for start, end in kept)

    matches = (pattern.fullmatch(behind) for pattern in _SPLIT)
    # "to avoid while" leans on what follows it; what is literal is not cut.
    return [match for match in matches if match and match["x"].split()[-1] not in STOP_WORDS and not cuts(match)]


def _step(n: int) -> int:
    return next(step for step in (7, 11, 5, 3, 1) if n % step)


def _framed(sentence: str, literals: Literals, rng: random.Random, turn: int, attempt: int) -> str:
    """The sentence with something said before or behind it; from the third attempt on, both by chance."""
    at = (turn * 7 + rng.randint(0, 1)) % (len(_OPENINGS) + len(_CLOSINGS))
    if attempt > 1:
        opening, closing = rng.choice(_OPENINGS), rng.choice(_CLOSINGS)
    else:
        opening, closing = (*_OPENINGS, *[""] * len(_CLOSINGS))[at], (*[""] * len(_OPENINGS), *_CLOSINGS)[at]
    if opening.endswith(": ") and rng.random() < 0.5:
        sentence = _lowered(sentence, literals)
    if closing and not sentence.endswith((".", "!", "?", ":")):
        sentence += "."
    return opening + sentence + closing


def _lowered(text: str, literals: Literals) -> str:
    """The text without a capital at its beginning, where the word there is known to be no name (``Entrez``)."""
    if any(start == 0 for start, _ in literals.protected(text)):
        return text
    word = text.partition(" ")[0].lower()
    known = word in STOP_WORDS or word in CLASS_OF or stem(word) in SYNONYMS or stem(word) in GENERIC
    return text[:1].lower() + text[1:] if word == "a" or (known and text[1:2].islower()) else text


def _argument(text: str, choices: Choices, rng: random.Random) -> str:
    number = _NUMBER_OF.fullmatch(text)
    if number:
        what, do = choices.apply(number["what"]), number["do"]
        return rng.choice(
            (
                f"How many {what} to {do}.",
                f"Count of {what} to {do}.",
                f"{capitalised(what)} to {do}: how many.",
                f"Number of {what} that the tool should {do}.",
                f"Sets how many {what} it will {do}.",
                f"Integer; tells how many {what} the tool is to {do}.",
                f"{capitalised(do)} this many {what}.",
            )
        )
    text = choices.apply(text)
    article = _ARTICLE.match(text)
    if article and rng.random() < 0.5:
        text = capitalised(text[article.end() :])
    if rng.random() < 0.3 and text.count(".") == 1:
        text = text.removesuffix(".")
    lead = rng.choice(_ARGUMENT_LEADS)
    if lead.startswith("{}") and len(lead) > 2 and not text.endswith("."):
        return text
    return lead.format(_lowered(text, choices.literals) if lead.endswith(": {}") else text)


def _verb_forms(verb: str) -> dict[str, str]:
    word, space, particle = verb.partition(" ")
    third = word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")
    if word.endswith("y") and word[-2] not in "aeiou":
        third = word[:-1] + "ies"
    if word in _DOUBLED:
        gerund = f"{word}{word[-1]}ing"
    else:
        gerund = (word[:-1] if word.endswith("e") and not word.endswith("ee") else word) + "ing"
    forms = {"v": verb, "vs": third + space + particle, "ving": gerund + space + particle}
    return forms | {name.capitalize(): capitalised(form) for name, form in forms.items()}

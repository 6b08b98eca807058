"""The offline writer: rules and a lexicon, deterministic by seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from txagent_train.core.records import JsonObject
from txagent_train.data.rewrites import ArgumentRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.descriptions import write_argument_descriptions, write_description
from txagent_train.toolsmith.drafts import Draft, Job, Written
from txagent_train.toolsmith.literals import Literals
from txagent_train.toolsmith.names import NameWriter, argument_names
from txagent_train.toolsmith.reserved import reserved_names
from txagent_train.toolsmith.synonyms import Choices, Vocabulary


class RuleWriter:
    """Writes versions without a model. A job depends on the toolbox, the seed and itself, not on other jobs."""

    def __init__(self, toolbox: Toolbox, *, seed: int = 0) -> None:
        self._seed = seed
        self._vocabulary = Vocabulary(toolbox.tools)
        self._names = NameWriter(self._vocabulary, reserved_names(toolbox))
        self._literals: dict[str, Literals] = {}

    def settings(self) -> JsonObject:
        """See Writer.settings."""
        return {"name": "rules", "seed": self._seed}

    def write(self, jobs: Sequence[Job], done: Callable[[int], None]) -> list[Written]:
        """See Writer.write."""
        written: list[Written] = []
        for job in jobs:
            written.append(self.draft(job))
            done(1)
        return written

    def draft(self, job: Job) -> Draft:
        """The version of one job."""
        spec = job.spec
        rng = random.Random(f"rewrite:{self._seed}:{spec.name}:{job.version}:{job.attempt}")
        literals = self._literals.get(spec.name) or self._literals.setdefault(spec.name, Literals.of(spec))
        choices = Choices(self._vocabulary, spec.name, literals, rng, attempt=job.attempt)
        name = self._names.write(spec, choices, rng, job.version, attempt=job.attempt)
        arguments = argument_names(spec, choices, rng)
        names = arguments | {spec.name: name}
        description = write_description(spec, names, choices, rng, job.version, attempt=job.attempt)
        described = write_argument_descriptions(spec, names, choices, rng)
        rewritten = {old: ArgumentRewrite(new, described[old]) for old, new in arguments.items()}
        return Draft(name, description, rewritten)

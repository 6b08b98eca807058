"""``site.yaml``: what a cluster has to be told, once for all recipes.

    account: my-project
    partition: gpu
    time: 24:00:00
    gpus_per_node: 8
    cpus_per_task: 64
    setup: [source /project/txagent/.venv/bin/activate]
    env: {HF_HOME: /scratch/$USER/hf, WANDB_API_KEY: $WANDB_API_KEY}

Every key is explained in docs/slurm.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from txagent_train.config.fields import Many, Section, raise_conflicts
from txagent_train.config.loading import read_file
from txagent_train.config.nodes import plain
from txagent_train.config.problems import describe, errors_of
from txagent_train.core.errors import RecipeError
from txagent_train.tracking.provenance import looks_secret

# A reference to the environment of whoever submits: $NAME or ${NAME}.
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_NAME = re.compile(r"[A-Za-z_]\w*")
# Hugging Face, W&B (old and new), OpenAI-like and GitHub keys.
_TOKEN = re.compile(r"(hf_[A-Za-z0-9]{20,}|[0-9a-f]{40}|wandb_v1_\w{20,}|sk-[\w-]{20,}|gh[a-z]_\w{20,})")
# minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def _to_text(value: object) -> object:
    """A number in YAML (``memory: 0``, ``OMP_NUM_THREADS: 8``) is meant as the text that it was written as."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_word(value: str) -> str:
    if not re.fullmatch(r"[^\s'\"`$\\;]+", value):
        raise ValueError("must be one word, without quotation marks and $")
    return value


def _check_memory(value: str) -> str:
    if not re.fullmatch(r"\d+[KMGT]?", value):
        raise ValueError("must be a number with K, M, G or T, or 0 for all of a node's memory")
    return value


def _check_line(value: str) -> str:
    if "\n" in value or "\0" in value:
        raise ValueError("must be one line")
    return value


def seconds_of(time: str) -> int:
    """The seconds of a time limit as SLURM writes it.

    Raises:
        ValueError: it is none.
    """
    match = _TIME.fullmatch(time)
    if match is None:
        raise ValueError("must be a time of SLURM: minutes, HH:MM:SS or D-HH:MM:SS")
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"] is not None:
        return ((int(match["days"]) * 24 + first) * 60 + second) * 60 + third
    if match["third"] is not None:
        return (first * 60 + second) * 60 + third
    return first * 60 + second


def _check_time(value: str) -> str:
    if seconds_of(value) == 0:
        raise ValueError("must be more than nothing")
    return value


Word = Annotated[str, AfterValidator(_check_word)]
Line = Annotated[str, AfterValidator(_check_line)]
Text = Annotated[Line, BeforeValidator(_to_text)]


class ContainerSection(Section):
    """Training runs in this image: apptainer starts it inside the job, pyxis is srun's ``--container-image``.

    ``binds`` are ``PATH`` or ``HOST:INSIDE``; the working directory is always there.
    """

    kind: Literal["none", "apptainer", "pyxis"] = "none"
    image: Line | None = None
    binds: Many[Line] = ()

    @model_validator(mode="after")
    def _fits(self) -> ContainerSection:
        raise_conflicts(
            [
                (self.kind != "none" and self.image is None, "image", f"{self.kind} needs the image to run"),
                (self.kind == "none" and self.image is not None, "kind", "say apptainer or pyxis"),
            ]
        )
        return self


class Site(Section):
    """One cluster.

    ``gpus_per_node: 0`` asks for none. ``memory: 0`` is all of a node. ``signal_seconds`` before the time limit the
    trainer is told to finish its step and to save; with ``requeue`` the job then stands in the queue again and goes on.
    ``setup`` are lines of bash, run on the first node before training. ``scratch`` is a folder on each node for
    temporary files. In ``env``, ``setup``, ``scratch`` and ``container`` ``$NAME`` is the environment's.
    """

    account: Word | None = None
    partition: Word | None = None
    qos: Word | None = None
    constraint: Annotated[str, AfterValidator(_check_word)] | None = None
    time: Annotated[str, BeforeValidator(_to_text), AfterValidator(_check_time)]
    gpus_per_node: int = Field(ge=0)
    gpu_type: Word | None = None
    cpus_per_task: int | None = Field(default=None, ge=1)
    memory: Annotated[str, BeforeValidator(_to_text), AfterValidator(_check_memory)] | None = None
    modules: Many[Word] = ()
    setup: Many[Line] = ()
    container: ContainerSection = ContainerSection()
    scratch: Line | None = None
    env: dict[str, Text] = Field(default_factory=dict)
    requeue: bool = True
    signal_seconds: int = Field(default=600, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Site:
        limit = seconds_of(self.time)
        late = f"the time limit is {limit} seconds: nothing would be trained before the signal"
        no_gpu = "there is no GPU to be of this type; set gpus_per_node"
        secret = "looks like a secret, which no file may hold; write ${name} and export it before you submit"
        raise_conflicts(
            [
                (self.signal_seconds >= limit, "signal_seconds", late),
                (self.gpu_type is not None and self.gpus_per_node == 0, "gpu_type", no_gpu),
                *((not _NAME.fullmatch(name), f"env.{name}", "is no name of a variable") for name in self.env),
                *(
                    (_is_secret(name, value), f"env.{name}", secret.format(name=name))
                    for name, value in self.env.items()
                ),
                *(
                    (_TOKEN.search(line) is not None, f"setup.{index}", secret.format(name="NAME"))
                    for index, line in enumerate(self.setup)
                ),
            ]
        )
        return self


def _is_secret(name: str, value: str) -> bool:
    return _TOKEN.search(value) is not None or (looks_secret(name) and not _REFERENCE.fullmatch(value))


def load_site(path: Path) -> Site:
    """Read a site file.

    Raises:
        RecipeError: every problem of it, each with its key and line.
    """
    problems: list[str] = []
    root = read_file(path, path, problems, what="the site file")
    site = None
    try:
        site = Site.model_validate(plain(root))
    except ValidationError as error:
        problems += describe(errors_of(error), Site, root, path)
    if site is None or problems:
        raise RecipeError(str(path), problems, what="the site file")
    return site


def shell_text(value: str) -> str:
    """A text as one word of bash in which ``$NAME`` is the environment's, and all else is itself.

    A variable that is not set ends the script, which says its name.
    """
    parts = []
    end = 0
    for match in _REFERENCE.finditer(value):
        parts += [_literal(value[end : match.start()]), f"${{{match[1] or match[2]}:?}}"]
        end = match.end()
    return f'"{"".join(parts)}{_literal(value[end:])}"'


def _literal(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)

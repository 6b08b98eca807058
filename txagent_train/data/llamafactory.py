"""A LLaMA-Factory run taken over: its data sets in one native file, its settings as a recipe beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from txagent_train.config.llamafactory import LlamaFactoryRun, read_llamafactory
from txagent_train.config.loading import load_recipe
from txagent_train.config.nodes import dump_yaml
from txagent_train.core.errors import RecipeError, UserError
from txagent_train.core.records import DataKind, JsonObject, Trace
from txagent_train.data.importers import NATIVE
from txagent_train.data.importers.llamafactory import INFO_FILE, LlamaFactoryDataset, read_datasets
from txagent_train.data.importing import Written, beside, chat_path, stem_of, write_traces
from txagent_train.data.loading import Incomplete, InvalidCalls, Policies, read_parsed
from txagent_train.data.writing import check_free
from txagent_train.tracking.files import atomic_write_text


@dataclass(frozen=True, slots=True)
class LlamaFactoryReport:
    """What was written: ``files`` of traces, and the ``recipe`` that names them.

    ``notes`` says of each key of the settings that is not, or not just so, in the recipe, why.
    """

    source: str
    recipe: str
    datasets: tuple[str, ...]
    files: tuple[str, ...]
    training: Written
    evaluation: Written | None
    notes: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def import_llamafactory(
    settings: Path,
    out: Path,
    *,
    incomplete: Incomplete = "drop",
    invalid_calls: InvalidCalls = "drop",
    overwrite: bool = False,
) -> LlamaFactoryReport:
    """Import the data sets that a settings file trains on, and write its recipe as ``<stem of out>.recipe.yaml``.

    Data sets of ``eval_dataset`` go to ``<stem of out>.eval.jsonl``. Plain chat that stands beside traces goes to
    ``<stem>.chat.jsonl``, for a source of a recipe is of one kind. Ids of traces begin with the name of their data set;
    faults name the file that they stand in. A data set on a hub is left out, and the notes say how to get it.

    Raises:
        UserError: the settings or ``dataset_info.json`` cannot be used, no data set to train on is a local file, or a
            file to be written exists already. Nothing is written.
        DataError, EnvironmentFailure: as importing.import_traces.
    """
    run = read_llamafactory(settings)
    recipe_path = out.with_name(f"{stem_of(out)}.recipe.yaml")
    folder = _dataset_dir(settings, run.dataset_dir)
    (datasets, remote), (eval_datasets, eval_remote) = (
        read_datasets(names, folder) for names in (run.datasets, run.eval_datasets)
    )
    if not datasets:
        raise next(iter(remote.values()))
    eval_out = beside(out, "eval") if eval_datasets else None
    files = [path for path in (out, eval_out) if path is not None]
    for path in (recipe_path, *files, *map(chat_path, files)):
        check_free(path, overwrite=overwrite)
    # Checked before the data is read: a recipe that asks for what there is not here is found at once.
    expected = [[_source(path, DataKind.TRACE)] for path in files]
    _check_recipe(_recipe(run, expected[0], expected[-1] if eval_out else [], invalid_calls), settings)

    def write(chosen: Sequence[LlamaFactoryDataset], path: Path) -> Written:
        return write_traces(
            lambda policies: _traces(chosen, policies, run),
            path,
            source=settings,
            read_as="llamafactory",
            incomplete=incomplete,
            invalid_calls=invalid_calls,
            overwrite=overwrite,
        )

    training = write(datasets, out)
    evaluation = write(eval_datasets, eval_out) if eval_out else None
    sources = _sources(out, training)
    held_out = _sources(eval_out, evaluation) if eval_out and evaluation else []
    atomic_write_text(recipe_path, dump_yaml(_recipe(run, sources, held_out, invalid_calls)))
    return LlamaFactoryReport(
        source=str(settings),
        recipe=str(recipe_path),
        datasets=tuple(dataset.name for dataset in datasets),
        files=tuple(str(out.with_name(source["path"])) for source in (*sources, *held_out)),
        training=training,
        evaluation=evaluation,
        notes={
            **run.notes,
            **{f"data set {name}": f"{error.problem}; {error.fix}" for name, error in (remote | eval_remote).items()},
        },
    )


def _dataset_dir(settings: Path, name: str) -> Path:
    """The folder of ``dataset_info.json``: as LLaMA-Factory has it below the working directory, or by the settings."""
    written = Path(name).expanduser()
    places = [Path.cwd() / written, settings.parent / written, settings.parent]
    found = next((place for place in places if (place / INFO_FILE).is_file()), None)
    if found is None:
        looked = ", ".join(str(place) for place in dict.fromkeys(places))
        raise UserError(
            f"there is no {INFO_FILE} in {looked}", where=str(settings), fix="set dataset_dir to its folder"
        )
    return found


def _traces(datasets: Sequence[LlamaFactoryDataset], policies: Policies, run: LlamaFactoryRun) -> Iterator[Trace]:
    seen: set[str] = set()
    for dataset in datasets:
        limits = [limit for limit in (dataset.limit, run.max_samples) if limit is not None]
        left = min(limits) if limits else None
        for path in dataset.files:
            if left == 0:
                break
            counted = _Counted(dataset)
            numbered = read_parsed(path, counted.parse, policies, seen=seen, last_only=run.last_turn_only, limit=left)
            yield from (trace for _, trace in numbered)
            left = None if left is None else left - counted.records


@dataclass
class _Counted:
    """A data set's parser that counts the records it was given, sound or not."""

    dataset: LlamaFactoryDataset
    records: int = 0

    def parse(self, record: JsonObject, *, path: Path, line: int) -> Trace:
        self.records += 1
        return self.dataset.parse(record, path=path, line=line)


def _sources(path: Path, written: Written) -> list[JsonObject]:
    """The source of a native file; or two, where the plain chat has its own."""
    kind = DataKind.TRACE if written.kinds[DataKind.TRACE] else DataKind.CHAT
    chat = [] if written.chat_out is None else [_source(Path(written.chat_out), DataKind.CHAT)]
    return [_source(path, kind), *chat]


def _source(path: Path, kind: DataKind) -> JsonObject:
    return {"path": path.name, "format": NATIVE, "kind": kind.value}


def _recipe(
    run: LlamaFactoryRun, sources: list[JsonObject], held_out: list[JsonObject], invalid_calls: InvalidCalls
) -> JsonObject:
    """The recipe with its files, which are named as lying beside it."""
    data: JsonObject = {"sources": sources}
    if held_out:
        data["eval"] = held_out
    if invalid_calls == "keep":
        data["invalid_calls"] = "keep"
    return {**run.recipe, "data": {**data, **run.recipe["data"]}}


def _check_recipe(recipe: JsonObject, settings: Path) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(dump_yaml(recipe), encoding="utf-8")
        try:
            load_recipe(path)
        except RecipeError as error:
            problems = "".join(f"\n  - {problem}" for problem in error.problems)
            raise UserError(f"the settings do not make a sound recipe:{problems}", where=str(settings)) from None

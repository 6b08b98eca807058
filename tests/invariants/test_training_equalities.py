"""Same data, same seed, same loss curve, whatever decides only who computes what. Tiny models in fp64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tests.support.tiny_training import (
    losses,
    make_trainer,
    prepare_rows,
    random_traces,
    tiny_recipe,
    trained_weights,
)
from txagent_train.core.errors import EnvironmentFailure
from txagent_train.core.records import JsonObject
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.token_plan import TokenPlan
from txagent_train.sft.trainer import StepShare, TraceTrainer


@pytest.fixture
def epochs(tmp_path: Path) -> list[PreparedRows]:
    """Two epochs of the same traces; 9 traces in sets of 4 leave an incomplete set."""
    return [
        prepare_rows(tmp_path / f"epoch-{number}", random_traces(9, seed=number, weights=(1.0, 0.25, 3.0)))
        for number in range(2)
    ]


def run(
    folder: Path, epochs: list[PreparedRows], *, ranks: int = 1, **options: Any
) -> tuple[TraceTrainer, list[JsonObject]]:
    """Train; what is dealt to several ranks is computed by one process, one rank after the other."""
    records: list[JsonObject] = []
    sections = {key: options.pop(key) for key in ("adapter", "model") if key in options}
    eval_rows = options.pop("eval_rows", None)
    dtype = options.pop("dtype", torch.float64)
    train = {"learning_rate": 1e-2, "traces_per_step": 4} | options
    recipe = tiny_recipe(folder, train=train, **sections)
    trainer = make_trainer(recipe, epochs, records, eval_rows=eval_rows, dtype=dtype)

    def share_of_all(step: int) -> StepShare:
        dealt = trainer.plan.forwards(step, trainer.layout, world_size=ranks)
        rows, reduction = trainer.plan.rows_of(step), trainer.plan.reduction
        return StepShare(step, tuple(trainer._collate(rows, item, reduction) for part in dealt for item in part))

    trainer._share = share_of_all  # type: ignore[method-assign]
    trainer.train()
    return trainer, records


def assert_same_training(
    one: tuple[TraceTrainer, list[JsonObject]], other: tuple[TraceTrainer, list[JsonObject]], tolerance: float
) -> None:
    assert losses(one[1]) == pytest.approx(losses(other[1]), rel=tolerance)
    weights, others = trained_weights(one[0]), trained_weights(other[0])
    for name, value in weights.items():
        torch.testing.assert_close(value, others[name], rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_rows_per_forward_changes_nothing(
    tmp_path: Path, epochs: list[PreparedRows], method: str, reduction: str
) -> None:
    options: dict[str, Any] = {"adapter": {"method": method, "lora": {"r": 4}}, "loss_reduction": reduction}
    options |= {"packing": "none"}
    alone = run(tmp_path / "1", epochs, rows_per_forward=1, **options)
    assert len(losses(alone[1])) == 6
    for size, ranks in ((2, 1), (4, 1), (8, 1), (2, 3)):
        other = run(tmp_path / f"{size}-{ranks}", epochs, rows_per_forward=size, ranks=ranks, **options)
        assert_same_training(alone, other, 1e-11)


def _exact_norm(self: LlamaRMSNorm, hidden_states: torch.Tensor) -> torch.Tensor:
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)


@pytest.fixture
def exact_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own norm rounds to float32, where a difference in the last bit of float64 may become 1e-7."""
    monkeypatch.setattr(LlamaRMSNorm, "forward", _exact_norm)


@pytest.mark.usefixtures("exact_norm")
@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_rows_of_tries_train_as_the_samples_do_one_by_one(
    tmp_path: Path, epochs: list[PreparedRows], method: str, reduction: str
) -> None:
    options: dict[str, Any] = {"adapter": {"method": method, "lora": {"r": 4}}, "loss_reduction": reduction}
    alone = run(tmp_path / "none", epochs, packing="none", **options)
    longest = max(int(rows.length.max()) for rows in epochs)
    # All tries of a step in one row; several tries in a row; rows so short that traces are split; few tries for ranks.
    for row_tokens, ranks in ((None, 1), (60, 1), (longest, 1), (60, 2), (longest, 2), (None, 5)):
        folder = tmp_path / f"trie-{row_tokens}-{ranks}"
        tries = run(folder, epochs, packing="trie", row_tokens=row_tokens, ranks=ranks, **options)
        assert_same_training(alone, tries, 1e-11)
        steps = [record for record in tries[1] if record["kind"] == "train"]
        counted = TokenPlan.of(tries[0].plan, tries[0].layout, ranks=ranks).total
        assert (counted.split_tries > 0) == (row_tokens == longest)
        assert counted.fillers == 0 if ranks == 1 else counted.fillers > 0 or ranks < 5
        assert counted.sharing_ratio > (1.0 if row_tokens == longest else 1.3), "hardly anything is shared"
        for key, count in {
            "tokens": counted.computed,
            "naive_tokens": counted.naive,
            "padding_tokens": counted.padding,
            "supervised_tokens": counted.supervised,
        }.items():
            assert sum(record[key] for record in steps) == count, "what was planned is what ran"


def test_gradient_checkpointing_changes_nothing(tmp_path: Path, epochs: list[PreparedRows]) -> None:
    plain = run(tmp_path / "plain", epochs)
    model = {"name_or_path": "tiny", "dtype": "float32", "gradient_checkpointing": True}
    assert_same_training(plain, run(tmp_path / "checkpointed", epochs, model=model), 1e-12)


def test_rows_change_nothing_in_single_precision(tmp_path: Path, epochs: list[PreparedRows]) -> None:
    # The curve only: Adam divides by the gradient's size, so weights whose gradient is nearly 0 amplify rounding.
    _, alone = run(tmp_path / "1", epochs, packing="none", dtype=torch.float32)
    _, together = run(tmp_path / "4", epochs, packing="none", rows_per_forward=4, dtype=torch.float32)
    _, tries = run(tmp_path / "trie", epochs, packing="trie", dtype=torch.float32)
    assert losses(alone) == pytest.approx(losses(together), rel=1e-6)
    assert losses(alone) == pytest.approx(losses(tries), rel=1e-6)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(
    tmp_path: Path, epochs: list[PreparedRows]
) -> None:
    first, again = run(tmp_path / "1", epochs), run(tmp_path / "2", epochs)
    assert losses(first[1]) == losses(again[1])
    weights, others = trained_weights(first[0]), trained_weights(again[0])
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    records: list[JsonObject] = []
    other = make_trainer(tiny_recipe(tmp_path / "3", seed=1), epochs, records)
    other.train()
    assert losses(records) != losses(first[1])


def brute_force(trainer: TraceTrainer, rows: PreparedRows, numbers: list[int], reduction: str) -> float:
    """Each row alone through the model's own logits; then the ratio as the definition has it."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    numerator = denominator = 0.0
    for number in numbers:
        ids, mask = rows.row(number)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(ids[None].astype("int64"))).logits[0, :-1]
        targets = torch.tensor(ids[1:].astype("int64"))
        nll = F.cross_entropy(logits, targets, reduction="none")[torch.tensor(mask[1:])]
        weight = float(rows.weight[number])
        numerator += weight * float(nll.sum() if reduction == "token" else nll.mean())
        denominator += weight * (len(nll) if reduction == "token" else 1)
    return numerator / denominator


@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_the_loss_of_a_step_is_the_weighted_mean_over_its_rows_alone(
    tmp_path: Path, epochs: list[PreparedRows], reduction: str
) -> None:
    train = {"traces_per_step": 4, "packing": "none", "rows_per_forward": 3, "loss_reduction": reduction}
    recipe = tiny_recipe(tmp_path, train=train)
    trainer = make_trainer(recipe, epochs, records := [])
    expected = brute_force(trainer, epochs[0], list(trainer.plan.steps[0].rows), reduction)
    trainer.train()
    assert losses(records)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("exact_norm")
@pytest.mark.parametrize("reduction", ["token", "sample"])
def test_the_evaluation_loss_is_exact_for_any_rows(tmp_path: Path, epochs: list[PreparedRows], reduction: str) -> None:
    held_out = prepare_rows(tmp_path / "eval", random_traces(5, seed=7, weights=(1.0, 2.0)))
    by_row: list[JsonObject] = [{"packing": "none", "rows_per_forward": size} for size in (1, 3, 50)]
    by_trie: list[JsonObject] = [{"row_tokens": size} for size in (int(held_out.length.max()), 60, None)]
    for train in (*by_row, *by_trie):
        recipe = tiny_recipe(tmp_path, train=train | {"loss_reduction": reduction})
        trainer = make_trainer(recipe, [held_out], [], eval_rows=held_out)
        expected = brute_force(trainer, held_out, list(range(len(held_out))), reduction)
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-12)


def test_every_prepared_token_is_trained_on_once_an_epoch(tmp_path: Path, epochs: list[PreparedRows]) -> None:
    _, records = run(tmp_path / "run", epochs, packing="none", rows_per_forward=2)
    for number, rows in enumerate(epochs):
        steps = [item for item in records if item["kind"] == "train" and number < item["epoch"] <= number + 1]
        assert sum(item["supervised_tokens"] for item in steps) == rows.report.supervised_tokens
        assert sum(item["tokens"] for item in steps) == rows.report.tokens
        assert sum(item["naive_tokens"] for item in steps) == rows.report.tokens
        by_step: dict[str, int] = {}
        for item in steps:
            for step, count in item["supervised_tokens_by_step"].items():
                by_step[step] = by_step.get(step, 0) + count
        assert by_step == rows.report.supervised_by_step


def test_max_steps_and_evaluation_cadence(tmp_path: Path, epochs: list[PreparedRows]) -> None:
    held_out = prepare_rows(tmp_path / "eval", random_traces(2, seed=7))
    _, records = run(tmp_path / "a", epochs, eval_rows=held_out)
    assert [item["step"] for item in records if item["kind"] == "eval"] == [0, 3, 6]
    assert sorted(path.name for path in (tmp_path / "a" / "checkpoints").iterdir()) == ["step-3", "step-6"]
    _, records = run(tmp_path / "b", epochs, eval_rows=held_out, max_steps=5, eval_every=2, save_every=2, keep_last=2)
    assert [item["step"] for item in records if item["kind"] == "eval"] == [0, 2, 4, 5]
    assert sorted(path.name for path in (tmp_path / "b" / "checkpoints").iterdir()) == ["step-4", "step-5"]


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path: Path, epochs: list[PreparedRows]) -> None:
    trainer = make_trainer(tiny_recipe(tmp_path), epochs, [])
    broken = trainer.model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight
    before = trained_weights(trainer)
    with torch.no_grad():
        broken[0, 0] = float("nan")
    with pytest.raises(EnvironmentFailure, match=r"loss is nan in optimizer step 1[\s\S]*Traces: t\d"):
        trainer.train()
    after = trained_weights(trainer)
    assert all(torch.equal(before[name], after[name]) for name in before)

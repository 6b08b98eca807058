from __future__ import annotations

import torch

from tests.support.tiny_training import tiny_model
from txagent_train.sft.adapter import add_adapter, lora_config
from txagent_train.sft.metrics import FlopModel, StepSums, Stopwatch, peak_flops, peak_memory_bytes
from txagent_train.sft.recorder import flop_model


def test_adapters_are_counted_at_4n_and_full_training_at_6n() -> None:
    model = tiny_model()
    full = flop_model(model, full=True)
    table, head = model.get_input_embeddings().weight.numel(), model.lm_head.weight.numel()
    assert full.body_parameters == sum(item.numel() for item in model.parameters()) - table - head
    assert full.convention == "6N" and full.step_flops(10, 0) == 60 * full.body_parameters
    adapted = add_adapter(model, lora_config({"r": 2, "target_modules": ["q_proj"]}), init_from=None, seed=0)
    lora = flop_model(adapted.get_base_model(), full=False)
    assert lora.convention == "4N" and lora.step_flops(0, 3) == 12 * head


def test_tied_tables_are_counted_once() -> None:
    model = tiny_model(tied=True)
    body = sum(item.numel() for item in model.parameters()) - model.lm_head.weight.numel()
    assert flop_model(model, full=True).body_parameters == body


def test_sums_by_source_and_step() -> None:
    sums = StepSums(("a", "b", "unused"), 3, torch.device("cpu"))
    weights = torch.tensor([1.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    nll = torch.tensor([3.0, 1.0, 5.0, 100.0])
    source, step = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 2, 2, 1])
    sums.add(nll=nll, weights=weights, source=source, step=step)
    sums.count("tokens", 9)
    assert sums.weighted_nll == 10.0 and sums.supervised == 3 and sums.counted("tokens") == 9
    assert sums.loss_by_source() == {"a": 5 / 3, "b": 5.0}
    assert sums.supervised_by_source() == {"a": 2, "b": 1}
    assert sums.weight_share({"a"}) == 3 / 4 and sums.weight_share(["a", "b"]) == 1
    assert sums.supervised_by_step() == {"0": 1, "2": 2}


def test_the_first_step_and_pauses_do_not_count() -> None:
    watch = Stopwatch()
    watch.step_done(100, 10)
    assert watch.lap() is None
    watch.step_done(50, 5)
    lap = watch.lap()
    assert lap is not None and lap[1:] == (50, 5) and lap[0] > 0
    assert watch.lap() is None


def test_a_cpu_has_no_peak() -> None:
    assert peak_flops(torch.device("cpu")) is None
    assert peak_memory_bytes(torch.device("cpu")) > 1 << 20
    assert FlopModel(1, 1, 4).convention == "4N"

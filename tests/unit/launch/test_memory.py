from __future__ import annotations

import json
import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_shapes import tiny_shape
from txagent_train.config.sft import ALL_LINEAR
from txagent_train.config.shipped import shipped_folder
from txagent_train.launch.memory import CHUNK_LOGITS, GIB, ZERO3_LIVE, Costs
from txagent_train.launch.states import Engine, Setup, states
from txagent_train.models.parameters import Sizes, arithmetic, known_shapes

ENGINES: tuple[Engine, ...] = ("single", "ddp", "fsdp2", "zero3", "zero3_offload")
LORA = {"r": 16, "target_modules": list(ALL_LINEAR)}


def setup(name: str = "meta-llama/Llama-3.1-8B-Instruct", *, full: bool = False, **changes: object) -> Setup:
    config = known_shapes()[name]
    made = {"parameters": arithmetic(config, None if full else LORA), "sizes": Sizes.of(config), "full": full}
    return Setup(**made | {"compute_bytes": 2} | changes)  # type: ignore[arg-type]


SETUPS = [setup(), setup(full=True), setup(nf4=True), setup("Qwen/Qwen3-4B-Instruct-2507", full=True)]


@pytest.mark.parametrize(("engine", "which"), list(product(ENGINES, range(len(SETUPS)))))
def test_more_gpus_and_checkpointing_never_need_more(engine: Engine, which: int) -> None:
    chosen = SETUPS[which]
    for checkpointing in (False, True):
        peaks = [
            Costs.of(chosen, engine, ranks=ranks, checkpointing=checkpointing).at(8192).peak
            for ranks in (1, 2, 3, 4, 8, 64)
        ]
        assert peaks == sorted(peaks, reverse=True)
    for row_tokens in (128, 8192, 131072):
        on, off = (Costs.of(chosen, engine, ranks=4, checkpointing=on).at(row_tokens) for on in (True, False))
        assert on.peak <= off.peak


@given(
    engine=st.sampled_from(ENGINES),
    ranks=st.integers(1, 9),
    full=st.booleans(),
    family=st.sampled_from(["llama", "qwen3"]),
)
def test_shards_hold_all_and_little_more(engine: Engine, ranks: int, full: bool, family: str) -> None:
    config = tiny_shape(family, tied=False)
    made = Setup(arithmetic(config, None if full else LORA), Sizes.of(config), full=full, compute_bytes=2)
    alone, shared = states(made, engine, ranks=1), states(made, engine, ranks=ranks)
    for name in ("weights", "gradients", "optimizer", "host"):
        whole, part = getattr(alone, name), getattr(shared, name)
        assert part == whole if engine in ("single", "ddp") else whole <= part * ranks


def test_what_is_kept_of_llama() -> None:
    trained, total = 41_943_040, 8_030_261_248
    lora = states(setup(), "ddp", ranks=8)
    assert (lora.weights, lora.gradients, lora.optimizer) == (2 * total + 4 * trained, 4 * trained, 8 * trained)
    # 16 bytes a parameter, as is well known.
    full = states(setup(full=True), "ddp", ranks=8)
    assert full.weights + full.gradients + full.optimizer == 16 * total
    sharded = states(setup(full=True), "zero3", ranks=8)
    assert sharded.weights + sharded.gradients + sharded.optimizer == pytest.approx(16 * total / 8, rel=1e-6)
    offloaded = states(setup(full=True), "zero3_offload", ranks=8)
    assert (offloaded.weights, offloaded.optimizer) == (0, 0)
    assert offloaded.host == pytest.approx(20 * total / 8, rel=1e-6)


def test_quantized_weights_take_about_half_a_byte() -> None:
    made = setup(nf4=True)
    matrices = sum(item.numel for item in made.parameters if item.part == "matrix")
    rest = sum(item.numel for item in made.parameters if item.part != "matrix")
    assert states(made, "single", ranks=1).weights == pytest.approx(0.516 * matrices + 2 * rest, rel=1e-3)


def test_eight_bit_moments() -> None:
    found = states(setup(optimizer="adamw_8bit"), "single", ranks=1)
    assert found.optimizer == pytest.approx(2 * 41_943_040 * (1 + 4 / 256), rel=1e-3)


def test_the_longest_row_is_the_longest() -> None:
    costs, limit = Costs.of(setup(), "ddp", ranks=4, checkpointing=True), 79 * GIB
    found = costs.longest_row(limit)
    assert found % 128 == 0 < found
    assert costs.at(found).peak <= limit < costs.at(found + 128).peak
    assert costs.longest_row(GIB) == 0


def test_the_chunk_of_logits_is_that_of_the_loss() -> None:
    from txagent_train.sft import loss

    assert loss._CHUNK_LOGITS == CHUNK_LOGITS


def test_it_needs_no_torch() -> None:
    code = "import sys, txagent_train.launch.recommend; assert not {'torch', 'transformers', 'peft'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["zero3", "zero3_offload"])
def test_what_is_assumed_of_deepspeed_is_what_is_shipped(name: str) -> None:
    config = json.loads((shipped_folder("deepspeed_configs") / f"{name}.json").read_text())
    zero = config["zero_optimization"]
    assert zero["stage3_max_live_parameters"] == zero["sub_group_size"] == ZERO3_LIVE
    # Gradients in the recipe's dtype, and what transformers takes for "auto".
    assert "data_types" not in config
    assert zero["reduce_bucket_size"] == zero["stage3_param_persistence_threshold"] == "auto"
    offloaded = [zero.get(part, {}).get("device") for part in ("offload_param", "offload_optimizer")]
    assert offloaded == (["cpu", "cpu"] if name == "zero3_offload" else [None, None])

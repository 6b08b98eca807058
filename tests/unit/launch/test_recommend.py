from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import shipped_recipe
from txagent_train.core.errors import ModelError, UserError
from txagent_train.launch.devices import GIB, device_named, parse_hardware
from txagent_train.launch.recommend import CHECKPOINTING, Recommendation, recommend
from txagent_train.sft.metrics import _PEAK_TFLOPS


def shipped(name: str, *overrides: str) -> SftRecipe:
    return load_recipe(shipped_recipe(name), overrides)


def on(recipe: SftRecipe, text: str, nodes: int = 1) -> Recommendation:
    gpus, device = parse_hardware(text)
    return recommend(recipe, gpus_per_node=gpus, nodes=nodes, gpu_memory_bytes=device.memory_bytes)


@pytest.mark.parametrize(
    ("name", "overrides", "hardware", "nodes", "strategy"),
    [
        ("txagent-llama3.1-8b-lora", [], "1xh100", 1, "single"),
        ("txagent-llama3.1-8b-lora", [], "4xh100", 1, "ddp"),
        ("txagent-llama3.1-8b-lora", [], "8xa100-80", 4, "ddp"),
        ("biotool-qwen3-4b-full", [], "8xh100", 1, "zero3"),
        ("biotool-qwen3-4b-full", [], "4xh100", 2, "fsdp2_multinode"),
        ("biotool-qwen3-4b-full", [], "1xa100-40", 1, "zero3_offload"),
    ],
)
def test_what_is_recommended(name: str, overrides: list[str], hardware: str, nodes: int, strategy: str) -> None:
    found = on(shipped(name, *overrides), hardware, nodes)
    assert (found.strategy, found.fits, found.overrides) == (strategy, True, ())
    assert "GiB" in found.why
    if strategy not in ("single", "ddp"):
        assert "whole on each GPU it would take" in found.why


def test_checkpointing_is_a_change_that_is_said() -> None:
    recipe = shipped("txagent-llama3.1-8b-lora", "model.gradient_checkpointing=false")
    found = on(recipe, "1xh100")
    assert (found.strategy, found.overrides) == ("single", (CHECKPOINTING,))
    assert "gradient checkpointing" in found.why
    short = shipped("txagent-llama3.1-8b-lora", "model.gradient_checkpointing=false", "train.row_tokens=2048")
    assert on(short, "1xh100").overrides == ()


def test_where_nothing_fits_it_says_what_would() -> None:
    found = on(shipped("txagent-llama3.1-8b-lora"), "1xrtx4090")
    assert not found.fits and "nothing fits" in found.why and "train.row_tokens" in found.why
    row = found.option.longest_row
    shorter = on(shipped("txagent-llama3.1-8b-lora", f"train.row_tokens={row}"), "1xrtx4090")
    assert shorter.fits
    longer = on(shipped("txagent-llama3.1-8b-lora", f"train.row_tokens={row + 128}"), "1xrtx4090")
    assert not longer.fits


@given(gpus=st.integers(1, 16), memory=st.integers(8, 160))
def test_more_gpus_and_memory_never_make_it_fit_less(gpus: int, memory: int) -> None:
    recipe = shipped("biotool-qwen3-4b-full")
    found = recommend(recipe, gpus_per_node=gpus, nodes=1, gpu_memory_bytes=memory * GIB)
    larger = recommend(recipe, gpus_per_node=gpus, nodes=1, gpu_memory_bytes=2 * memory * GIB)
    assert larger.fits or not found.fits
    if gpus > 1:
        more = recommend(recipe, gpus_per_node=2 * gpus, nodes=1, gpu_memory_bytes=memory * GIB)
        assert more.fits or not found.fits


def test_other_models_need_a_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox", "hidden_size": 8}')
    recipe = shipped("txagent-llama3.1-8b-lora", f"model.name_or_path={tmp_path}")
    with pytest.raises(ModelError, match=r"gpt_neox(.|\n)*--accelerate"):
        on(recipe, "1xh100")


def test_every_shipped_recipe_gets_one_without_a_network() -> None:
    from txagent_train.config.shipped import shipped_recipes

    code = (
        "import pathlib, sys; from txagent_train.config.loading import load_recipe; "
        "from txagent_train.launch.recommend import recommend; "
        "r = load_recipe(pathlib.Path(sys.argv[1])); print(recommend(r, gpus_per_node=4, nodes=1, "
        "gpu_memory_bytes=79 << 30).strategy); assert 'torch' not in sys.modules"
    )
    for name in shipped_recipes():
        start = time.perf_counter()
        path = str(shipped_recipe(name))
        subprocess.run([sys.executable, "-c", code, path], check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        print(f"{name}: {time.perf_counter() - start:.2f} s")


def test_gpus_by_name() -> None:
    assert parse_hardware("4xH100") == (4, device_named("h100"))
    bad: Any
    for bad, text in {"h100": "such as 4xh100", "0xh100": "such as", "2xh1000": "did you mean h100"}.items():
        with pytest.raises(UserError, match=text):
            parse_hardware(bad)


def test_peaks_are_those_by_which_utilisation_is_measured() -> None:
    same = {"a100-40": "A100", "a100-80": "A100", "h100": "H100", "h200": "H200", "l40s": "L40S", "a6000": "A6000"}
    same["rtx4090"] = "RTX 4090"
    assert {name: device_named(name).tflops for name in same} == {
        name: _PEAK_TFLOPS[vendor] for name, vendor in same.items()
    }

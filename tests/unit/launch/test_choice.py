from __future__ import annotations

import socket
from pathlib import Path

import pytest

from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import UserError
from txagent_train.launch.choice import Target, check_port, choose, target_elsewhere, target_here
from txagent_train.launch.devices import device_named
from txagent_train.launch.gpus import Gpu
from txagent_train.launch.site import Site

H100 = device_named("h100").memory_bytes


@pytest.fixture(scope="module")
def recipe() -> SftRecipe:
    return load_recipe(find_recipe("txagent-llama3.1-8b-lora"))


def gpus(count: int, memory: int = H100) -> list[Gpu]:
    return [Gpu(str(index), f"GPU-{index}", "H100", memory + index) for index in range(count)]


def test_all_gpus_are_taken_or_as_many_as_asked() -> None:
    assert target_here(gpus(8), nodes=1, gpus=None) == Target(1, 8, H100)
    assert target_here(gpus(8), nodes=2, gpus=3) == Target(2, 3, H100)
    assert target_here([], nodes=1, gpus=None) == Target(1, 0, None)
    assert target_here(gpus(2, 0)[:1], nodes=1, gpus=None).memory_bytes is None
    with pytest.raises(UserError, match="9 GPUs were asked for, but this machine shows 8"):
        target_here(gpus(8), nodes=1, gpus=9)


def test_what_another_machine_has_is_said_or_in_the_site_file() -> None:
    assert target_elsewhere("4xh100", None, nodes=1, gpus=None) == Target(1, 4, H100)
    site = Site(time="1:00:00", gpus_per_node=8, gpu_type="h100")
    assert target_elsewhere(None, site, nodes=2, gpus=None) == Target(2, 8, H100)
    own_name = site.model_copy(update={"gpu_type": "tesla"})
    assert target_elsewhere(None, own_name, nodes=2, gpus=4) == Target(2, 4, None)
    with pytest.raises(UserError, match="there are 8"):
        target_elsewhere(None, site, nodes=1, gpus=16)


def test_what_is_named_is_taken(recipe: SftRecipe, tmp_path: Path) -> None:
    target = Target(1, 8, None)
    assert choose(recipe, target, "zero3").strategy == "zero3"
    file = tmp_path / "mine.yaml"
    file.write_text("distributed_type: MULTI_GPU")
    assert choose(recipe, target, str(file)).strategy == file
    with pytest.raises(UserError, match="no such accelerate configuration"):
        choose(recipe, target, str(tmp_path / "other.yaml"))
    with pytest.raises(UserError, match="did you mean fsdp2"):
        choose(recipe, target, "fsdp")


def test_what_is_recommended_is_taken_with_its_reason(recipe: SftRecipe) -> None:
    several = choose(recipe, Target(4, 8, H100), None)
    assert several.strategy in ("ddp", "fsdp2_multinode")
    assert several.why.startswith("recommended: ")
    small = choose(recipe, Target(1, 4, device_named("rtx4090").memory_bytes), "single")
    assert small.why == "as asked"


def test_without_a_gpu_it_is_one_process_or_an_error(recipe: SftRecipe) -> None:
    here = choose(recipe, Target(1, 0, None), None)
    assert (here.strategy, here.why) == ("single", "there is no GPU here")
    with pytest.raises(UserError, match="no GPU is here"):
        choose(recipe, Target(1, 0, None), "ddp")
    with pytest.raises(UserError, match="one process, on one node"):
        choose(recipe, Target(2, 8, H100), "single")


def test_unknown_memory_and_too_little_of_it_are_errors(recipe: SftRecipe) -> None:
    with pytest.raises(UserError, match="--on 8xh100"):
        choose(recipe, Target(1, 8, None), None)
    with pytest.raises(UserError, match="does not fit"):
        choose(recipe, Target(1, 2, 2**30), None)


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} cannot be used"):
            check_port(port)
    check_port(port)

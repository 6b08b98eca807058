"""The shipped configurations against the libraries that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

from txagent_train.launch.command import LaunchPlan, Meeting, node_argv
from txagent_train.launch.strategies import STRATEGIES, Strategy, accelerate_config, deepspeed_config

ROOT = Path(__file__).parents[3]
SHARDED = ("fsdp2", "fsdp2_multinode", "zero3", "zero3_offload")
ENGINES = {"single": "NO", "ddp": "MULTI_GPU", "fsdp2": "FSDP", "fsdp2_multinode": "FSDP"}


def environment(options: list[str]) -> dict[str, str]:
    """What accelerate's launcher would give to the processes, or what it says against the options."""
    args, defaults, from_file = _validate_launch_command(launch_command_parser().parse_args(options))
    if args.use_deepspeed:
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] if from_file else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        command, made = prepare_deepspeed_cmd_env(args)
        assert command is None  # torchrun, not pdsh
    elif args.use_fsdp or args.multi_gpu:
        made = prepare_multi_gpu_env(args)
    else:
        _, made = prepare_simple_launcher_cmd_env(args)
    made["processes of a node"] = str(getattr(args, "nproc_per_node", args.num_processes))
    return made


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_accelerate_reads_the_file_and_the_recipe_alone_decides_the_precision(strategy: Strategy) -> None:
    loaded = load_config_from_file(str(accelerate_config(strategy)))
    assert isinstance(loaded, ClusterConfig)
    assert loaded.distributed_type.value == ENGINES.get(strategy, "DEEPSPEED")
    assert loaded.mixed_precision is None
    assert loaded.use_cpu is False  # with true, accelerate would run DDP instead of what shards


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_key_is_one_that_the_launcher_knows(strategy: Strategy) -> None:
    known = set(vars(launch_command_parser().parse_args(["x"])))
    written = yaml.safe_load(accelerate_config(strategy).read_text(encoding="utf-8"))
    for section in ("fsdp_config", "deepspeed_config"):
        assert set(written.get(section, {})) <= known


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_plain_command_of_the_readme_is_understood(strategy: Strategy) -> None:
    options = ["--config_file", f"accelerate_configs/{strategy}.yaml", "-m", "txagent_train", "sft", "quickstart"]
    made = environment(options)
    assert made["processes of a node"] == {"single": "1", "fsdp2_multinode": "8"}.get(strategy, "gpu")
    assert made["ACCELERATE_MIXED_PRECISION"] == "no"
    if strategy.startswith("zero3"):
        assert Path(made["ACCELERATE_DEEPSPEED_CONFIG_FILE"]).samefile(deepspeed_config(strategy) or "")


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
@pytest.mark.parametrize("nodes", [1, 3])
def test_our_command_is_understood_from_any_folder(
    strategy: Strategy, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = LaunchPlan("sft", "quickstart", strategy, nodes, 4, overrides=("seed=1",))
    meeting = None if nodes == 1 else Meeting("2", "node0", "29512")
    made = environment(list(node_argv(plan, meeting)[3:]))
    assert made["processes of a node"] == "4"
    if strategy.startswith("zero3"):
        assert made["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == str(deepspeed_config(strategy))
    if strategy.startswith("fsdp2"):
        assert made["FSDP_VERSION"] == "2"


@pytest.mark.parametrize("strategy", ["fsdp2", "fsdp2_multinode"])
def test_the_fsdp_plugin_takes_what_the_launcher_hands_on(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.fsdp import StateDictType

    made = environment(["--config_file", str(accelerate_config(strategy)), "-m", "txagent_train"])
    for name, value in made.items():
        if name.startswith("FSDP_"):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.cpu_ram_efficient_loading is True
    assert plugin.activation_checkpointing is False  # the recipe's model.gradient_checkpointing does it
    assert plugin.state_dict_type is StateDictType.SHARDED_STATE_DICT
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"


def deepspeed(strategy: Strategy) -> dict[str, Any]:
    path = deepspeed_config(strategy)
    assert path is not None
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def autos(value: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from autos(item, f"{prefix}{key}.")
        elif item == "auto":
            yield prefix + key


@pytest.mark.parametrize("strategy", ["zero3", "zero3_offload"])
def test_every_auto_is_one_that_the_trainer_fills(strategy: Strategy) -> None:
    from transformers import LlamaConfig, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    class Model:
        config = LlamaConfig(hidden_size=64)

    config = HfTrainerDeepSpeedConfig(deepspeed(strategy))
    args = TrainingArguments(use_cpu=True, bf16=True, report_to="none")
    assert len(list(autos(config.config))) == 8
    config.trainer_config_process(args)
    config.trainer_config_finalize(args, Model(), num_training_steps=10)
    assert list(autos(config.config)) == []


@pytest.mark.parametrize("strategy", ["zero3", "zero3_offload"])
def test_deepspeed_knows_every_key(strategy: Strategy) -> None:
    from deepspeed.runtime import constants
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    written = deepspeed(strategy)
    zero = written.pop("zero_optimization")
    assert set(written) <= {value for value in vars(constants).values() if isinstance(value, str)} | {"bf16"}
    # Unknown keys are an error here.
    read = DeepSpeedZeroConfig(**{key: 1 if value == "auto" else value for key, value in zero.items()})
    assert read.stage == 3
    # Without it, an adapter is saved as an empty file.
    assert read.gather_16bit_weights_on_model_save is True
    assert (read.offload_param is not None) == (read.offload_optimizer is not None) == (strategy == "zero3_offload")

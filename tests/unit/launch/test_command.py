from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.core.errors import UserError
from txagent_train.launch.command import (
    PYTHON,
    LaunchPlan,
    Meeting,
    ShellVariable,
    node_argv,
    node_environment,
    shell_line,
)
from txagent_train.launch.strategies import STRATEGIES, accelerate_config, deepspeed_config, strategy_named


def test_a_single_process_is_the_command_itself() -> None:
    plan = LaunchPlan("sft", "my.yaml", "single", overrides=("seed=3",), resume="never")
    assert node_argv(plan) == (*PYTHON, "-m", "txagent_train", "sft", "my.yaml", "seed=3", "--resume", "never")
    assert node_environment(plan, cores=8, environment={}) == {}


def test_one_node_takes_any_free_port() -> None:
    argv = node_argv(LaunchPlan("sft", "my.yaml", "zero3", gpus_per_node=8))
    text = " ".join(argv)
    assert f"--config_file {accelerate_config('zero3')} --deepspeed_config_file {deepspeed_config('zero3')}" in text
    assert "--num_machines 1 --num_processes 8 --main_process_port 0 -m txagent_train sft my.yaml" in text


def test_several_nodes_meet_at_the_first_one() -> None:
    plan = LaunchPlan("sft", "my.yaml", "fsdp2_multinode", nodes=2, gpus_per_node=4)
    text = " ".join(node_argv(plan, Meeting("1", "node-7", "29501"), python=("python",)))
    assert text.startswith("python -m accelerate.commands.launch --config_file ")
    assert "--num_machines 2 --num_processes 8 --machine_rank 1 --main_process_ip node-7" in text
    assert "--main_process_port 29501 -m txagent_train sft my.yaml" in text


def test_a_users_configuration_names_its_own_deepspeed_file() -> None:
    argv = node_argv(LaunchPlan("sft", "my.yaml", Path("/mine/special.yaml"), gpus_per_node=2))
    assert "/mine/special.yaml" in argv
    assert "--deepspeed_config_file" not in argv


def test_processes_get_time_to_save_and_an_optimizer_on_the_cpu_its_cores() -> None:
    plan = LaunchPlan("sft", "my.yaml", "zero3_offload", gpus_per_node=4)
    wanted = node_environment(plan, cores=64, environment={})
    assert wanted == {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600", "OMP_NUM_THREADS": "16"}
    own = {"OMP_NUM_THREADS": "2"}
    assert "OMP_NUM_THREADS" not in node_environment(plan, cores=64, environment=own)
    assert node_environment(plan, cores=2, environment={})["OMP_NUM_THREADS"] == "1"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), max_size=4))
def test_a_shell_hands_on_what_was_meant(parts: list[str]) -> None:
    assert shlex.split(shell_line(["run", *parts])) == ["run", *parts]


def test_a_shell_expands_only_what_is_marked() -> None:
    line = shell_line(["printf", "%s|", "$HOME", ShellVariable("$WHO"), "a b"], {"X": "1 2"})
    done = subprocess.run(["bash", "-c", line], env={"WHO": "me and you"}, capture_output=True, text=True, check=True)
    assert done.stdout == "$HOME|me and you|a b|"


def test_strategies_have_their_files_and_unknown_ones_a_hint() -> None:
    for strategy in STRATEGIES:
        assert accelerate_config(strategy).is_file()
        assert strategy_named(strategy) == strategy
    with pytest.raises(UserError, match="did you mean zero3"):
        strategy_named("zero-3")

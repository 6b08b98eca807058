from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from txagent_train.config.loading import load_recipe
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import ToolCall, Trace
from txagent_train.data.llamafactory import LlamaFactoryReport, import_llamafactory
from txagent_train.data.loading import load_traces
from txagent_train.data.reading import read_jsonl

SETTINGS: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507",
    "trust_remote_code": True,
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "lora_rank": 8,
    "lora_target": "all",
    "dataset": "lookups, small_talk",
    "dataset_dir": "sets",
    "template": "qwen3_nothink",
    "cutoff_len": 4096,
    "output_dir": "saves/lookups",
    "logging_steps": 5,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "learning_rate": 2.0e-5,
    "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.1,
    "bf16": True,
    "packing": False,
    "report_to": "none",
    "resume_from_checkpoint": None,
}
TOOLS = json.dumps([{"name": "get_dose", "description": "", "parameters": {"type": "object", "properties": {}}}])
CALL = {"who": "caller", "text": json.dumps({"name": "get_dose", "arguments": {"drug": "ibuprofen", "n": 1.0}})}
LOOKUPS: list[dict[str, Any]] = [
    {
        "turns": [
            {"who": "asker", "text": "How much ibuprofen?"},
            CALL,
            {"who": "result", "text": '{"dose": "200 mg"}'},
            {"who": "model", "text": "200 mg."},
            {"who": "asker", "text": "And twice?"},
            {"who": "model", "text": "400 mg."},
        ],
        "functions_text": TOOLS,
        "prompt_text": "Be exact.",
        "topic": "dose",
    },
    {"turns": [{"who": "asker", "text": "Call it."}, CALL], "functions_text": TOOLS, "prompt_text": ""},
    {"turns": [{"who": "oracle", "text": "?"}], "functions_text": TOOLS, "prompt_text": ""},
]
TALK = [
    {"instruction": "Say hello", "input": "in Latin", "output": "Salve.", "history": [["Who are you?", "A model."]]},
    {"instruction": "Say no.", "input": "", "output": "No."},
]
INFO: dict[str, Any] = {
    "lookups": {
        "file_name": "lookups.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "turns", "tools": "functions_text", "system": "prompt_text"},
        "tags": {
            "role_tag": "who", "content_tag": "text", "user_tag": "asker", "assistant_tag": "model",
            "observation_tag": "result", "function_tag": "caller",
        },
    },
    "small_talk": {"file_name": "talk.json", "columns": {"prompt": "instruction", "query": "input"}},
    "chats": {
        "file_name": "chats.json",
        "formatting": "openai",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
                 "observation_tag": "tool", "function_tag": "assistant", "system_tag": "system"},
    },
    "far": {"hf_hub_url": "somebody/traces"},
    "pictures": {"file_name": "chats.json", "formatting": "sharegpt", "columns": {"images": "images"}},
    "preferences": {"file_name": "talk.json", "ranking": True},
    "absent": {"file_name": "absent.json"},
}  # fmt: skip
CHATS = [
    {
        "messages": [
            {"role": "user", "content": "Dose?"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": json.loads(CALL["text"])}]},
            {"role": "tool", "content": "200 mg"},
            {"role": "assistant", "content": "200 mg."},
        ],
        "tools": TOOLS,
    }
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sets = tmp_path / "sets"
    sets.mkdir()
    (sets / "lookups.jsonl").write_text("".join(json.dumps(item) + "\n" for item in LOOKUPS))
    (sets / "talk.json").write_text(json.dumps(TALK))
    (sets / "chats.json").write_text(json.dumps(CHATS))
    (sets / "dataset_info.json").write_text(json.dumps(INFO))
    return tmp_path


def _import(folder: Path, *, keep: bool = False, **settings: Any) -> LlamaFactoryReport:
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump({**SETTINGS, **settings}))
    return import_llamafactory(path, folder / "out" / "traces.jsonl", invalid_calls="keep" if keep else "drop")


def _traces(folder: Path, name: str = "traces.jsonl") -> list[Trace]:
    return list(load_traces(folder / "out" / name, invalid_calls="keep"))


def test_data_sets_of_other_words_become_native_files(folder: Path) -> None:
    report = _import(folder)
    assert [Path(name).name for name in report.files] == ["traces.jsonl", "traces.chat.jsonl"]
    assert (report.training.read, report.training.accepted, report.training.dropped) == (5, 4, {"unknown_role": 1})
    first, second = _traces(folder)
    assert (first.id, first.system, first.answer, first.metadata) == (
        "lookups-1",
        "Be exact.",
        "400 mg.",
        {"topic": "dose"},
    )
    assert list(first.steps[0].calls[0].arguments.items()) == [("drug", "ibuprofen"), ("n", 1.0)]
    assert (first.steps[0].results[0].content, first.steps[1].thought) == ('{"dose": "200 mg"}', "200 mg.")
    assert (second.id, second.system, second.is_complete) == ("lookups-2", None, True)
    chat, plain = _traces(folder, "traces.chat.jsonl")
    assert (chat.id, chat.answer, [step.thought for step in chat.steps]) == (
        "small_talk-1",
        None,
        ["A model.", "Salve."],
    )
    assert chat.turns[2].content == "Say hello\nin Latin"  # type: ignore[union-attr]
    assert plain.question == "Say no."


def test_dropped_records_name_their_own_file(folder: Path) -> None:
    report = _import(folder)
    assert report.training.dropped_file is not None
    ((_, dropped),) = read_jsonl(Path(report.training.dropped_file))
    assert (dropped["file"], dropped["line"]) == (str(folder / "sets" / "lookups.jsonl"), 3)
    assert (dropped["id"], dropped["reason"]) == ("lookups-3", "unknown_role")


def test_the_recipe(folder: Path) -> None:
    report = _import(folder)
    recipe = load_recipe(Path(report.recipe))
    assert (recipe.name, recipe.output_dir, recipe.seed) == ("train", Path("saves/lookups"), 42)
    assert [(source.path.name, source.kind) for source in recipe.data.sources] == [
        ("traces.jsonl", "trace"),
        ("traces.chat.jsonl", "chat"),
    ]
    assert all(source.path.is_file() for source in recipe.data.sources)
    assert (recipe.model.name_or_path, recipe.model.dtype) == ("Qwen/Qwen3-4B-Instruct-2507", "bfloat16")
    assert recipe.model.gradient_checkpointing  # as LLaMA-Factory does where nothing is said
    assert (recipe.adapter.method, recipe.adapter.lora.r, recipe.adapter.lora.lora_alpha) == ("lora", 8, 16)
    assert recipe.adapter.lora.target_modules == "all-linear"
    assert (recipe.wire.frame, recipe.wire.syntax, recipe.wire.finish) == ("chatml", "hermes", "text")
    assert (recipe.data.max_length, recipe.data.overlong) == (4096, "error")
    train = recipe.train
    assert (train.epochs, train.traces_per_step, train.packing) == (3, 16, "trie")
    assert (train.learning_rate, train.lr_scheduler, train.warmup_ratio) == (2e-5, "cosine", 0.1)
    assert (recipe.tracking.wandb, recipe.tracking.log_every) == ("off", 5)


def test_what_is_left_out_has_defaults_of_llamafactory(folder: Path) -> None:
    kept = ("model_name_or_path", "dataset", "dataset_dir", "output_dir")
    (folder / "short.yaml").write_text(yaml.safe_dump({key: SETTINGS[key] for key in kept}))
    report = import_llamafactory(folder / "short.yaml", folder / "traces.jsonl")
    recipe = load_recipe(Path(report.recipe))
    assert (recipe.train.learning_rate, recipe.train.lr_scheduler, recipe.train.warmup_ratio) == (5e-5, "linear", 0.0)
    assert (recipe.train.traces_per_step, recipe.data.max_length, recipe.wire.frame) == (8, 2048, "auto")


def test_each_key_without_counterpart_is_told_with_the_reason(folder: Path) -> None:
    odd: dict[str, Any] = {
        "val_size": 0.1,
        "deepspeed": "ds_z3.json",
        "quantization_bit": 8,
        "lr_scheduler_type": "polynomial",
    }
    odd |= {"resume_from_checkpoint": "saves/x", "report_to": ["wandb", "swanlab"], "odd_key": 1}
    notes = _import(folder, **{**odd, "fp16": False}).notes
    assert notes["trust_remote_code"] == "no code of a model repository is ever executed"
    assert notes["odd_key"] == "not known to this converter"
    changed = {"cutoff_len", "template", "per_device_train_batch_size", "do_train", "trust_remote_code"}
    assert notes.keys() == odd.keys() | changed
    assert not {"packing", "fp16", "learning_rate", "stage", "dataset", "bf16"} & notes.keys()


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ({"finetuning_type": "full"}, "adapter.method", "full"),
        ({"quantization_bit": 4}, "model.quantization", "nf4"),
        ({"lora_target": "q_proj, v_proj"}, "adapter.lora.target_modules", ("q_proj", "v_proj")),
        ({"lora_alpha": 32, "use_dora": True}, "adapter.lora.lora_alpha", 32),
        ({"flash_attn": "fa2"}, "model.attn_implementation", "flash_attention_2"),
        ({"flash_attn": "fa2"}, "train.packing", "none"),
        ({"flash_attn": "fa2"}, "train.rows_per_forward", 2),
        ({"flash_attn": "sdpa"}, "model.attn_implementation", "auto"),
        ({"lr_scheduler_type": "constant"}, "train.warmup_ratio", 0.0),
        ({"template": "llama3"}, "wire.frame", "llama3"),
        ({"report_to": "wandb"}, "tracking.wandb", "auto"),
        ({"max_steps": 40}, "train.max_steps", 40),
        ({"save_steps": 500, "save_total_limit": 3}, "train.save_every", 500),
        ({"eval_steps": 50, "eval_dataset": "chats"}, "train.eval_every", 50),
        ({"num_train_epochs": 1.5}, "train.epochs", 2),
        ({"preprocessing_num_workers": 16}, "data.workers", 16),
        ({"optim": "adamw_bnb_8bit"}, "train.optimizer", "adamw_8bit"),
    ],
)
def test_keys_that_are_mapped(folder: Path, settings: dict[str, Any], key: str, value: Any) -> None:
    found: Any = load_recipe(Path(_import(folder, **settings).recipe))
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


def test_held_out_data_goes_to_a_file_of_its_own(folder: Path) -> None:
    report = _import(folder, dataset="lookups", eval_dataset="chats")
    recipe = load_recipe(Path(report.recipe))
    assert [source.path.name for source in recipe.data.eval] == ["traces.eval.jsonl"]
    (trace,) = _traces(folder, "traces.eval.jsonl")
    assert (trace.id, trace.answer) == ("chats-1", "200 mg.")
    assert trace.steps[0].calls == (ToolCall("get_dose", {"drug": "ibuprofen", "n": 1.0}),)


def test_mask_history_and_max_samples(folder: Path) -> None:
    report = _import(folder, dataset="lookups", mask_history=True, max_samples=1)
    assert report.training.read == 1
    (trace,) = _traces(folder)
    assert [step.train for step in trace.steps] == [False, False, True]


def test_calls_that_break_their_schema_are_kept_on_request(folder: Path) -> None:
    broken = {**LOOKUPS[1], "functions_text": "[]"}
    (folder / "sets" / "lookups.jsonl").write_text("".join(json.dumps(item) + "\n" for item in (LOOKUPS[0], broken)))
    report = _import(folder, keep=True, dataset="lookups")
    assert report.training.accepted == 2
    assert load_recipe(Path(report.recipe)).data.invalid_calls == "keep"


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "hub": ({"dataset": "far"}, r"lies on a hub \(somebody/traces\)[\s\S]*download"),
    "unknown data set": ({"dataset": "lookup"}, "dataset_info.json, lookup: there is no such data set"),
    "no file": ({"dataset": "absent"}, "no such file: .*absent.json"),
    "pictures": ({"dataset": "pictures"}, "holds images, videos or sounds"),
    "preferences": ({"dataset": "preferences"}, "preferences, not traces"),
    "no data set": ({"dataset": ""}, "nothing to import"),
    "no folder": ({"dataset_dir": "elsewhere", "dataset": "x"}, "there is no dataset_info.json"),
    "stage": ({"stage": "dpo"}, "stage dpo is not supervised fine-tuning"),
    "method": ({"finetuning_type": "freeze"}, "freeze is not known here"),
    "type": ({"learning_rate": "fast"}, r"train.yaml:\d+: learning_rate must be float, not 'fast'"),
    "conflict": ({"finetuning_type": "full", "quantization_bit": 4}, "do not make a sound recipe[\\s\\S]*quantized"),
    "range": ({"learning_rate": -1.0}, "do not make a sound recipe[\\s\\S]*train.learning_rate"),
}


@pytest.mark.parametrize(("settings", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_are_told_and_nothing_is_written(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        _import(folder, **settings)
    assert not (folder / "out").exists()


def test_a_data_set_on_a_hub_does_not_stop_the_others(folder: Path) -> None:
    report = _import(folder, dataset="lookups,far", eval_dataset="far")
    assert (report.datasets, report.training.accepted, report.evaluation) == (("lookups",), 2, None)
    assert "huggingface-cli download --repo-type dataset somebody/traces" in report.notes["data set far"]


@pytest.mark.parametrize("text", ["", "[]", "a: [", "a: 1\na: 2", "just text"])
def test_settings_that_are_none(folder: Path, text: str) -> None:
    (folder / "train.yaml").write_text(text)
    with pytest.raises(UserError):
        import_llamafactory(folder / "train.yaml", folder / "traces.jsonl")


def test_nothing_is_overwritten_unasked(folder: Path) -> None:
    _import(folder)
    with pytest.raises(UserError, match="exists already"):
        _import(folder)


def test_a_data_set_that_gives_nothing_is_an_error(folder: Path) -> None:
    (folder / "sets" / "lookups.jsonl").write_text(json.dumps({"other": []}) + "\n")
    with pytest.raises(DataError, match="none of the 1 records is accepted") as caught:
        _import(folder, dataset="lookups")
    assert "columns.messages of lookups" in str(caught.value)


def test_real_data_sets(folder: Path, shared_data: Callable[[str], Path]) -> None:
    entry = {"formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}}
    info = {
        "glaive": {**entry, "file_name": str(shared_data("sharegpt/glaive_toolcall_en.json"))},
        "biotool": {**entry, "file_name": str(shared_data("biotool/sharegpt_train.json"))},
    }
    (folder / "sets" / "dataset_info.json").write_text(json.dumps(info))
    report = _import(folder, keep=True, dataset="glaive,biotool")
    assert (report.training.read, report.training.accepted) == (75, 75)
    found = [trace for name in report.files for trace in _traces(folder, Path(name).name)]
    assert {trace.id for trace in found} == {f"glaive-{n}" for n in range(1, 61)} | {
        f"biotool-{n}" for n in range(1, 16)
    }

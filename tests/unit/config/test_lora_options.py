from __future__ import annotations

from dataclasses import fields

from txagent_train.config.lora_options import lora_option_names, unknown_lora_options


def test_the_names_read_from_the_source_are_those_of_the_class() -> None:
    from peft import LoraConfig, PeftConfig

    own = {field.name for field in fields(LoraConfig)} - {field.name for field in fields(PeftConfig)}
    assert lora_option_names() == own


def test_unknown_options() -> None:
    assert unknown_lora_options(["use_rslora", "modules_to_save"]) == []
    assert unknown_lora_options(["task_type", "zzz"]) == [
        ("task_type", "peft.LoraConfig has no such option"),
        ("zzz", "peft.LoraConfig has no such option"),
    ]


def test_names_of_other_tools_are_known() -> None:
    names = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout", "targets": "target_modules"}
    for (name, problem), wanted in zip(unknown_lora_options(names), names.values(), strict=True):
        assert problem.endswith(f"; did you mean adapter.lora.{wanted}?"), name
    assert set(names.values()) - {"r"} <= lora_option_names()

"""The settings of a LLaMA-Factory training run as a recipe of ours.

Every key of theirs ends in one of three ways: in the recipe, in the import of the data (``LlamaFactoryRun.datasets``
and the like), or in ``notes`` with the reason why it has no counterpart. Keys that are left out have LLaMA-Factory's
defaults, not ours: the recipe is to train what the file would have trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txagent_train.config.llamafactory_keys import DEFAULTS, FRAMES, OPTIMIZERS, RENAMED, SCHEDULERS, TYPES, WITHOUT
from txagent_train.config.nodes import YamlProblem, plain, read_yaml
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject


@dataclass(frozen=True, slots=True)
class LlamaFactoryRun:
    """What a settings file asks for.

    ``recipe`` lacks ``data.sources`` and ``data.eval``, whose files the import makes. ``max_samples`` is per data set;
    ``last_turn_only`` trains on the last turn of each conversation alone (``mask_history``). ``notes`` says of each
    key that is not, or not just so, in the recipe, why.
    """

    recipe: JsonObject
    datasets: tuple[str, ...]
    eval_datasets: tuple[str, ...]
    dataset_dir: str
    max_samples: int | None
    last_turn_only: bool
    notes: dict[str, str]


def read_llamafactory(path: Path) -> LlamaFactoryRun:
    """The training run that a LLaMA-Factory YAML (or JSON) file describes.

    Raises:
        UserError: the file cannot be read, a value has the wrong type, or the run is of a kind that there is not here.
    """
    return _Converter(path, _read(path)).run()


def _read(path: Path) -> JsonObject:
    try:
        root, problems = read_yaml(path.read_text(encoding="utf-8-sig"), path)
    except FileNotFoundError:
        raise UserError("there is no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file cannot be read: {error}", where=str(path)) from None
    except YamlProblem as problem:
        raise UserError(problem.text, where=f"{path}:{problem.line}") from None
    if problems:
        raise UserError(problems[0].text, where=f"{path}:{problems[0].line}")
    if not isinstance(root.value, dict):
        raise UserError("the file must be a mapping of keys to values", where=str(path))
    out: JsonObject = {}
    for key, node in root.value.items():
        value = plain(node)
        if value is None:
            continue
        if key in TYPES and not _fits(value, TYPES[key]):
            kinds = " or ".join(kind.__name__ for kind in TYPES[key])
            raise UserError(f"{key} must be {kinds}, not {value!r}", where=f"{path}:{node.place.line}")
        out[key] = value
    return out


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, (*kinds, int) if float in kinds else kinds)


@dataclass
class _Converter:
    path: Path
    given: JsonObject
    recipe: JsonObject = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def run(self) -> LlamaFactoryRun:
        self.settings = {**DEFAULTS, **self.given}
        self._check_kind()
        self.recipe |= {"kind": "sft", "name": self._name(), "output_dir": self.settings["output_dir"]}
        for key, place in RENAMED.items():
            if key in self.settings:
                self._set(place, self.settings[key])
        sections = (self._model, self._adapter, self._wire, self._length, self._batch, self._schedule)
        for section in (*sections, self._saving, self._tracking):
            section()
        for key, value in self.given.items():
            if key in WITHOUT and value is not False:
                self.notes.setdefault(key, WITHOUT[key])
            elif key not in WITHOUT and key not in TYPES:
                self.notes.setdefault(key, "not known to this converter")
        return LlamaFactoryRun(
            recipe=self.recipe,
            datasets=self._names("dataset"),
            eval_datasets=self._names("eval_dataset"),
            dataset_dir=self.settings["dataset_dir"],
            max_samples=self.settings.get("max_samples"),
            last_turn_only=self.settings.get("mask_history", False),
            notes=self.notes,
        )

    def _set(self, place: str, value: Any) -> None:
        section, _, key = place.rpartition(".")
        target = self.recipe
        for part in section.split(".") if section else ():
            target = target.setdefault(part, {})
        target[key] = value

    def _error(self, problem: str, fix: str = "") -> UserError:
        return UserError(problem, where=str(self.path), fix=fix)

    def _names(self, key: str) -> tuple[str, ...]:
        value = self.settings.get(key, "")
        names = value.split(",") if isinstance(value, str) else value
        if not all(isinstance(name, str) for name in names):
            raise self._error(f"{key} must name data sets, not {value!r}")
        return tuple(name.strip() for name in names if name.strip())

    def _name(self) -> str:
        name = self.settings.get("run_name", self.path.stem)
        return Path(name).name or self.path.stem

    def _check_kind(self) -> None:
        for key in ("model_name_or_path", "output_dir"):
            if key not in self.settings:
                raise self._error(f"{key} is missing")
        if not self._names("dataset"):
            raise self._error("dataset is missing: there is nothing to import")
        stage, method = self.settings["stage"], self.settings["finetuning_type"]
        if stage != "sft":
            raise self._error(f"stage {stage} is not supervised fine-tuning", "only stage: sft can be converted")
        if method not in ("lora", "full"):
            raise self._error(f"finetuning_type {method} is not known here", "use lora or full")

    def _model(self) -> None:
        if self.settings.get("model_revision", "main") != "main":
            self._set("model.revision", self.settings["model_revision"])
        if self.settings.get("bf16") or self.settings.get("pure_bf16"):
            self._set("model.dtype", "bfloat16")
        kernels = {"fa2": "flash_attention_2", "sdpa": "auto", "auto": "auto", "disabled": "eager"}
        kernel = str(self.settings.get("flash_attn", "auto"))
        if kernel not in kernels:
            self.notes["flash_attn"] = f"{kernel} is not known here; auto is used"
        self._set("model.attn_implementation", kernels.get(kernel, "auto"))
        self._set("model.gradient_checkpointing", not self.settings.get("disable_gradient_checkpointing", False))
        bits = self.settings.get("quantization_bit")
        if bits == 4:
            self._set("model.quantization", "nf4")
        elif bits is not None:
            self.notes["quantization_bit"] = f"{bits} bits are not known here, only 4 (nf4): the model is not quantized"

    def _adapter(self) -> None:
        if self.settings["finetuning_type"] == "full":
            unused = [key for key in self.given if key.startswith("lora_") or key in ("use_dora", "use_rslora")]
            self.notes |= {key: "finetuning_type is full: there are no adapters" for key in unused}
            self.recipe["adapter"] = {"method": "full"}
            if "adapter_name_or_path" in self.given:
                self.notes["adapter_name_or_path"] = "merge the adapter into the model first (txagent-train merge)"
            return
        self._set("adapter.method", "lora")
        self._set("adapter.lora.lora_alpha", self.settings.get("lora_alpha", 2 * self.settings["lora_rank"]))
        target = self.settings["lora_target"]
        names = [name.strip() for name in target.split(",")] if isinstance(target, str) else target
        self._set("adapter.lora.target_modules", "all-linear" if names == ["all"] else names)
        if extra := self._names("additional_target"):
            self._set("adapter.lora.modules_to_save", list(extra))
        adapters = self._names("adapter_name_or_path")
        if len(adapters) == 1:
            self._set("adapter.init_from", adapters[0])
        elif adapters:
            self.notes["adapter_name_or_path"] = "several adapters: merge all but the last into the model first"

    def _wire(self) -> None:
        template = str(self.settings.get("template", "")).lower()
        frame = next((frame for start, frame in FRAMES.items() if template.startswith(start)), "auto")
        self.recipe["wire"] = {"frame": frame, "syntax": "hermes", "finish": "text"}
        self.notes["template"] = (
            f"{template or 'none given'}: frame {frame}, calls as <tool_call> blocks, no Finish tool; the words around "
            "tools and messages are those of this package, and its chat template is saved with the model"
        )

    def _length(self) -> None:
        self._set("data.overlong", "error")
        self.notes["cutoff_len"] = (
            "longer samples are cut there; here nothing is cut, and a longer sample stops the run: raise "
            "data.max_length, or set data.overlong to drop"
        )
        if self.settings.get("val_size"):
            self.notes["val_size"] = "hold out with `txagent-train data split`, then name the file in data.eval"

    def _batch(self) -> None:
        rows = self.settings["per_device_train_batch_size"]
        if self.recipe["model"]["attn_implementation"] == "flash_attention_2":  # it takes no mask of a trie
            self._set("train.packing", "none")
            self._set("train.rows_per_forward", rows)
        self._set("train.traces_per_step", rows * self.settings["gradient_accumulation_steps"])
        self.notes["per_device_train_batch_size"] = (
            "train.traces_per_step is it times gradient_accumulation_steps, for one device: multiply by the number of "
            "devices that the run was made for; it does not change with the number here. How much a device computes at "
            "once is train.row_tokens (with train.packing none: train.rows_per_forward)"
        )
        epochs = self.settings["num_train_epochs"]
        self._set("train.epochs", math.ceil(epochs))
        if epochs != math.ceil(epochs):
            self.notes["num_train_epochs"] = f"{epochs} is rounded up; train.max_steps can end the run earlier"
        if self.settings.get("max_steps", -1) > 0:
            self._set("train.max_steps", self.settings["max_steps"])

    def _schedule(self) -> None:
        name = self.settings["lr_scheduler_type"]
        if name not in SCHEDULERS:
            self.notes["lr_scheduler_type"] = f"{name} is not known here; linear is used"
        self._set("train.lr_scheduler", SCHEDULERS.get(name, "linear"))
        if name == "constant":
            self._set("train.warmup_ratio", 0.0)
            if "warmup_ratio" in self.given:
                self.notes["warmup_ratio"] = "the schedule named constant has no warm-up there"
        if self.settings.get("warmup_steps"):
            self.notes["warmup_steps"] = "warm-up is a share of the run here: set train.warmup_ratio"
        optimizer = self.settings["optim"]
        if optimizer not in OPTIMIZERS:
            self.notes["optim"] = f"{optimizer} is not known here; adamw_torch is used"
        self._set("train.optimizer", OPTIMIZERS.get(optimizer, "adamw_torch"))

    def _saving(self) -> None:
        every = {"save": ("save_steps", "save_every"), "eval": ("eval_steps", "eval_every")}
        for what, (key, ours) in every.items():
            if what == "eval" and not self._names("eval_dataset"):
                unused = [name for name in (key, "eval_strategy") if name in self.given]
                self.notes |= dict.fromkeys(unused, "there is no eval_dataset")
                continue
            strategy = self.settings.get(f"{what}_strategy", "steps")
            steps = self.settings.get(key)
            if strategy != "steps" or steps is None:
                continue
            if isinstance(steps, int) and steps >= 1:
                self._set(f"train.{ours}", steps)
            else:
                self.notes[key] = "a share of the run; here it is a number of steps"
        if self.settings.get("save_strategy") == "no":
            self.notes["save_strategy"] = "a run is always saved: at each epoch's end and at the end"
        if self.settings.get("save_total_limit", 0) >= 1:
            self._set("train.keep_last", self.settings["save_total_limit"])

    def _tracking(self) -> None:
        value = self.settings.get("report_to", "none")
        names = [value] if isinstance(value, str) else list(value)
        on = "wandb" in names or "all" in names
        self._set("tracking.wandb", "auto" if on else "off")
        if others := [name for name in names if name not in ("wandb", "all", "none")]:
            text = "a run directory holds its metrics as files, and one HTML report"
            self.notes["report_to"] = f"there is no {', '.join(map(str, others))} here; {text}"
        steps = self.settings.get("logging_steps")
        if isinstance(steps, int) and steps >= 1:
            self._set("tracking.log_every", steps)
        elif steps is not None:
            self.notes["logging_steps"] = "a share of the run; here it is a number of steps"
        if "resume_from_checkpoint" in self.given:
            self.notes["resume_from_checkpoint"] = (
                "checkpoints of LLaMA-Factory cannot be gone on from; our own: --resume"
            )

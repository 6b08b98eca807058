"""The recipe of supervised fine-tuning (``kind: sft``)."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from txagent_train.config.fields import Conflicts, FilePath, Many, Number, Section, raise_conflicts
from txagent_train.config.lora_options import unknown_lora_options

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every linear layer of a Llama-like decoder block."""

SourceFormat = Literal["auto", "native", "openai", "txagent", "athena", "sharegpt", "toolbench"]
SourceKind = Literal["trace", "summary", "qa", "chat"]

# numpy and torch take seeds of 32 bits.
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class ModelSection(Section):
    """The base model.

    ``name_or_path`` is ``embedded:NAME`` (a model that comes with a package), a Hugging Face id or a local folder.
    ``dtype: auto`` means bfloat16 on a GPU and float32 on a CPU. ``attn_implementation: auto`` is sdpa, or with
    ``train.packing: trie`` what is made for tries (packing.attention); sdpa and eager compute tries with a mask of all
    pairs of tokens, which only short rows have memory for. ``quantization: nf4`` is QLoRA: it needs a GPU and
    bitsandbytes.
    """

    name_or_path: str
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attn_implementation: Literal["auto", "sdpa", "flash_attention_2", "eager"] = "auto"
    quantization: Literal["none", "nf4"] = "none"
    gradient_checkpointing: bool = False

    @model_validator(mode="after")
    def _fits(self) -> ModelSection:
        flash_in_float32 = self.attn_implementation == "flash_attention_2" and self.dtype == "float32"
        raise_conflicts([(flash_in_float32, "dtype", "flash_attention_2 has no float32; use auto or bfloat16")])
        return self


def _check_target_modules(value: object) -> object:
    """A list of layer names, or one text: ``all-linear`` or a regular expression."""
    if isinstance(value, (list, tuple)):
        if not value or not all(isinstance(item, str) and item for item in value):
            raise ValueError("must be a list of layer names, or one text (all-linear or a regular expression)")
        return tuple(value)
    if not isinstance(value, str) or not value:
        raise ValueError("must be a list of layer names, or one text (all-linear or a regular expression)")
    return value


class LoraSection(Section):
    """Options of peft.LoraConfig. Those not named here (use_dora, rank_pattern, ...) pass through as written."""

    model_config = ConfigDict(extra="allow")

    r: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=16, ge=1)
    lora_dropout: Number = Field(default=0.0, ge=0.0, lt=1.0)
    target_modules: Annotated[Any, BeforeValidator(_check_target_modules)] = ALL_LINEAR

    @model_validator(mode="after")
    def _options_exist(self) -> LoraSection:
        unknown = unknown_lora_options(self.model_extra or {})
        if unknown:
            raise Conflicts(unknown)
        return self

    def options(self) -> dict[str, Any]:
        """Keyword arguments of peft.LoraConfig; lists are lists, as in the YAML."""
        return self.model_dump(mode="json")


class AdapterSection(Section):
    """What is trained: low-rank adapters, or all weights.

    ``init_from`` is an adapter folder whose weights training starts from. The optimizer and the schedule start
    anew; to go on with an interrupted run, use ``--resume``.
    """

    method: Literal["lora", "full"] = "lora"
    init_from: FilePath | None = None
    lora: LoraSection = LoraSection()

    @model_validator(mode="after")
    def _fits(self) -> AdapterSection:
        text = "an adapter cannot start a full fine-tune; merge it into the model first"
        raise_conflicts([(self.method == "full" and self.init_from is not None, "init_from", text)])
        return self


class WireSection(Section):
    """How messages become tokens: frame x call syntax x how a trace ends x where found tools stand.

    ``frame: auto`` takes the frame whose control tokens the tokenizer has. ``finish: call`` ends a trace with a
    Finish call; ``text`` with a plain message. ``tool_delivery`` is where the tools stand that Tool_RAG returned:
    ``prompt`` appends them to the list of tools in the head of later prompts, as TxAgent does; ``result`` leaves the
    list as it is and puts them into the result of the call, so that each prompt goes on from the one before.
    """

    frame: Literal["auto", "llama3", "chatml"] = "auto"
    syntax: Literal["txagent", "hermes"] = "txagent"
    finish: Literal["call", "text"] = "call"
    tool_delivery: Literal["prompt", "result"] = "prompt"


class SourceSection(Section):
    """One data file, what kind of data it holds, and its weight in the loss.

    ``kind``: ``trace`` is recorded tool use; ``summary``, ``qa`` and ``chat`` are general data without tools, mixed in
    so that the model keeps its other abilities. ``format: auto`` is guessed from the first records, and said.
    """

    path: FilePath
    format: SourceFormat = "auto"
    kind: SourceKind = "trace"
    weight: Number = Field(default=1.0, gt=0.0)


class AugmentSection(Section):
    """What makes the tools of a training trace different in every epoch. Held-out data is never augmented.

    ``toolbox`` are all tools (``tools import``), ``rewrites`` other names and descriptions of them (``tools rewrite``),
    ``neighbours`` the tools nearest to each. ``share`` of the traces are augmented, the others stay as recorded.
    ``originals``: a tool may keep its own name and description too, as one version among its rewrites. ``n_random``
    tools of the toolbox, and the ``n_hard`` nearest ones to each tool that is used, are shown besides those of the
    trace. In ``virtual_share`` of the augmented traces, tools that were there from the start are first searched for
    with Tool_RAG (data.virtual).
    """

    toolbox: FilePath
    rewrites: FilePath | None = None
    neighbours: FilePath | None = None
    n_random: int = Field(default=0, ge=0)
    n_hard: int = Field(default=0, ge=0)
    share: Number = Field(default=1.0, ge=0.0, le=1.0)
    originals: bool = True
    virtual_share: Number = Field(default=0.0, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _fits(self) -> AugmentSection:
        text = "the nearest tools are read from a file; name it in neighbours"
        raise_conflicts([(self.n_hard > 0 and self.neighbours is None, "n_hard", text)])
        return self


class AblationSection(Section):
    """What the paper takes away to see what it is worth.

    ``max_steps`` leaves out traces with more steps before their answer. ``thoughts: false`` takes what the model thinks
    out of outputs and history, in held-out data too. ``tool_fraction`` is the share of the toolbox that exists: traces
    that use other tools are left out, and the others are not shown.
    """

    max_steps: Literal[1, 3, 5] | None = None
    thoughts: bool = True
    tool_fraction: Number = Field(default=1.0, gt=0.0, le=1.0)


class DataSection(Section):
    """Training and held-out data; ``max_length`` is in tokens.

    A sample that is too long is never cut: it stops the run (``error``), is left out and counted (``drop``), or the
    longest-ago tool results in it give way to summaries until it fits (``summarize``).

    ``exclude`` names files with one entity a line: training traces about any of them are left out and counted.
    ``frozen`` names files that ``data split`` wrote beside a held-out part: a training trace that is in one stops
    the run. ``prepared_dir`` is where tokens are kept, for several runs to share (default: in ``output_dir``), and
    ``workers`` how many processes make them (default: one for each core); neither changes a token. With ``augment``, a
    call to a tool that is not in its toolbox is one of the ``invalid_calls``.
    """

    sources: Many[SourceSection] = Field(min_length=1)
    eval: Many[SourceSection] = ()
    exclude: Many[FilePath] = ()
    frozen: Many[FilePath] = ()
    max_length: int = Field(default=32768, ge=1)
    overlong: Literal["error", "drop", "summarize"] = "error"
    invalid_calls: Literal["error", "drop", "keep"] = "error"
    incomplete: Literal["error", "drop", "steps"] = "error"
    shuffle_tools: bool = True
    augment: AugmentSection | None = None
    ablation: AblationSection = AblationSection()
    prepared_dir: FilePath | None = None
    workers: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> DataSection:
        trained = {source.path for source in self.sources}
        both = "this file is trained on too; held-out data must be another"
        without = "a share of which toolbox? name its file in data.augment.toolbox"
        raise_conflicts(
            [
                *((source.path in trained, f"eval.{index}.path", both) for index, source in enumerate(self.eval)),
                (self.ablation.tool_fraction < 1 and self.augment is None, "ablation.tool_fraction", without),
            ]
        )
        return self


class TrainSection(Section):
    """The optimization. One optimizer step is over ``traces_per_step`` traces.

    ``packing: trie``: the samples of a trace go through the model as one trie of tokens, in which what they have in
    common is computed once. A device computes one row at once, filled with tries up to ``row_tokens``, which is what
    fits into its memory; a trace that is longer is split between samples. Null: data.max_length, and a CPU fills rows
    only up to 1,024 tokens, since longer ones cost it memory and gain nothing. ``packing: none``: each sample by
    itself, ``rows_per_forward`` at once. All of this changes speed and memory, never the loss.
    ``eval_every`` and ``save_every`` are in optimizer steps (null: each epoch's end); both also happen at the end, and
    held-out data is evaluated once before training. ``max_steps`` ends the run early; beyond the end of the last epoch
    it changes nothing. ``check_retention`` measures before and after training how well the model predicts answers to
    general instructions, which come with the package.
    """

    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    traces_per_step: int = Field(default=16, ge=1)
    rows_per_forward: int = Field(default=1, ge=1)
    packing: Literal["none", "trie"] = "trie"
    row_tokens: int | None = Field(default=None, ge=1)
    # TxAgent's paper names no learning rate; this is alignment-handbook's for LoRA, which it builds on.
    learning_rate: Number = Field(default=2.0e-4, gt=0.0)
    lr_scheduler: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_ratio: Number = Field(default=0.1, ge=0.0, le=1.0)
    weight_decay: Number = Field(default=0.0, ge=0.0)
    max_grad_norm: Number = Field(default=1.0, gt=0.0)
    optimizer: Literal["adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit"] = "adamw_torch"
    loss_reduction: Literal["token", "sample"] = "token"
    eval_every: int | None = Field(default=None, ge=1)
    save_every: int | None = Field(default=None, ge=1)
    keep_last: int = Field(default=2, ge=1)
    check_retention: bool = False

    @model_validator(mode="after")
    def _fits(self) -> TrainSection:
        one_row = "with packing trie a forward pass is one row: set row_tokens to what fits into it, or packing to none"
        no_row = "belongs to packing trie; with packing none, rows_per_forward says how much is computed at once"
        raise_conflicts(
            [
                (self.packing == "trie" and self.rows_per_forward > 1, "rows_per_forward", one_row),
                (self.packing == "none" and self.row_tokens is not None, "row_tokens", no_row),
            ]
        )
        return self


class TrackingSection(Section):
    """Weights & Biases; ``log_every`` is in optimizer steps. ``auto``: online if there is a key, else offline."""

    wandb: Literal["auto", "online", "offline", "off"] = "auto"
    project: str = "txagent-train"
    entity: str | None = None
    tags: Many[str] = ()
    log_every: int = Field(default=1, ge=1)


def _check_run_name(value: str) -> str:
    if PurePath(value).name != value:
        raise ValueError("names the run, so it must not be a path")
    return value


class SftRecipe(Section):
    """Everything that one fine-tuning run is made of. ``output_dir`` is relative to the working directory."""

    kind: Literal["sft"]
    name: Annotated[str, AfterValidator(_check_run_name)]
    output_dir: FilePath
    seed: Seed = 0
    model: ModelSection
    adapter: AdapterSection = AdapterSection()
    wire: WireSection = WireSection()
    data: DataSection
    train: TrainSection = TrainSection()
    tracking: TrackingSection = TrackingSection()

    @property
    def row_tokens(self) -> int:
        """The most tokens of a row with packing trie."""
        return self.data.max_length if self.train.row_tokens is None else self.train.row_tokens

    @model_validator(mode="after")
    def _fits(self) -> SftRecipe:
        raise_conflicts(
            [
                (
                    self.model.quantization != "none" and self.adapter.method == "full",
                    "model.quantization",
                    "quantized weights cannot be trained; use adapter.method lora, or quantization none",
                ),
                (
                    self.train.packing == "trie" and self.model.attn_implementation == "flash_attention_2",
                    "train.packing",
                    "flash_attention_2 takes no mask of a trie; use auto",
                ),
                (
                    self.train.eval_every is not None and not self.data.eval,
                    "train.eval_every",
                    "there is nothing to evaluate on; name held-out files in data.eval",
                ),
            ]
        )
        return self

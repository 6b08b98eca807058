"""The memory of one GPU in a training run, by strategy, from the sizes of the model. No torch.

    exact      weights, gradients and optimizer states that a rank keeps (launch.states); tests measure them to the byte
    estimated  copies of weights, activations, the loss, temporaries of the optimizer step, and an allowance

The peak is what is kept, and the larger of what a backward pass and what the optimizer step needs besides. Activations
are those of one forward pass over ``row_tokens`` tokens through a block built like Llama's: what autograd saves there
(by reading the model code), and what is alive at the worst moment. Attention scores are never stored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from txagent_train.core.records import JsonObject
from txagent_train.launch.devices import GIB
from txagent_train.launch.states import Engine, Setup, States, local_numel, states
from txagent_train.models.parameters import Parameter

CONTEXT_BYTES = GIB
"""CUDA context, kernels, workspaces of cuBLAS and Triton."""
NCCL_BYTES = GIB
"""Buffers and channels of NCCL, on every rank of several."""
FRAGMENTATION = 0.05
"""Of all else: what PyTorch's allocator holds and cannot use."""
CHUNK_LOGITS = 1 << 26
"""Most logits at once, as in sft.loss; about four fp32 copies live in the computation of a chunk."""
ZERO3_LIVE = 10**9
"""Elements of gathered weights that ZeRO-3 keeps, stage3_max_live_parameters; and those of one optimizer sub-group."""
BLOCK = 128
"""Rows are made of whole blocks of tokens, see packing.flex."""
_LONGEST = 1 << 20
_SHARED_INPUT = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "mlp", "up_proj": "mlp"}
"""Linear layers that read the same tensor."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one GPU, the rank with most; ``host`` is on the CPU's side, for each rank.

    ``copies``: gathered layers, buckets of gradients, casts of weights. ``step``: temporaries of the optimizer step,
    which come when ``activations`` and ``loss`` are gone.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    activations: int
    loss: int
    step: int
    allowance: int
    host: int

    @property
    def peak(self) -> int:
        kept = self.weights + self.gradients + self.optimizer + self.copies
        return kept + max(self.activations + self.loss, self.step) + self.allowance

    def to_json(self) -> JsonObject:
        return asdict(self) | {"peak": self.peak}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a strategy costs whatever the length of a row, and what each token of it adds."""

    setup: Setup
    engine: Engine
    kept: States
    copies: int
    step: int
    activation_bytes: int

    @classmethod
    def of(cls, setup: Setup, engine: Engine, *, ranks: int, checkpointing: bool) -> Costs:
        """Of the fullest of ``ranks`` GPUs, over which FSDP2 and ZeRO-3 divide; with DDP each holds all."""
        return cls(
            setup=setup,
            engine=engine,
            kept=states(setup, engine, ranks=ranks),
            copies=_copies(setup, engine),
            step=_step(setup, engine, ranks),
            activation_bytes=_activations(setup, engine, checkpointing),
        )

    def at(self, row_tokens: int) -> Memory:
        """With forward passes of so many tokens, padding included."""
        kept, activations = self.kept, self.activation_bytes * row_tokens
        loss = _loss(self.setup, self.engine, row_tokens)
        used = Memory(
            weights=kept.weights,
            gradients=kept.gradients,
            optimizer=kept.optimizer,
            copies=self.copies,
            activations=activations,
            loss=loss,
            step=self.step,
            allowance=0,
            host=kept.host,
        )
        fixed = CONTEXT_BYTES + NCCL_BYTES * (self.engine != "single")
        return replace(used, allowance=fixed + int(FRAGMENTATION * used.peak))

    def longest_row(self, memory_bytes: int) -> int:
        """The most tokens in one forward pass whose peak fits, in whole blocks; 0 if not even one block does."""
        low, high = 0, _LONGEST // BLOCK
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle * BLOCK).peak <= memory_bytes else (low, middle - 1)
        return low * BLOCK


def _layer(setup: Setup, number: int = 0) -> list[Parameter]:
    return [item for item in setup.parameters if item.layer == number]


def _copies(setup: Setup, engine: Engine) -> int:
    """What an engine makes of weights and gradients besides those it keeps."""
    compute, sizes = setup.compute_bytes, setup.sizes
    trained = [item for item in setup.parameters if item.trainable]
    table = sizes.vocabulary * sizes.hidden
    # Dequantized for its product, one layer at a time.
    whole = max(item.numel for item in _layer(setup) if item.part == "matrix") * compute if setup.nf4 else 0
    if engine in ("single", "ddp"):
        # Autocast keeps its casts of fp32 weights to the end of the forward pass, and autograd those it needs.
        casts = sum(item.numel for item in trained if setup.element_bytes(item, engine) > compute) * compute
        buckets = sum(item.numel * setup.element_bytes(item, engine) for item in trained) if engine == "ddp" else 0
        return whole + casts + buckets
    block = sum(setup.stored_bytes(item, engine, gathered=True) for item in _layer(setup))
    if engine == "fsdp2":
        # This block and the next one; the head stays gathered from its forward to its backward pass.
        gathered = max(2 * block, table * compute if not sizes.tied else 0) + table * compute
        # Gradients of the block before they are reduced and scattered, and what they are copied together into.
        return whole + gathered + 2 * sum(item.numel for item in _layer(setup) if item.trainable) * compute
    everything = sum(setup.stored_bytes(item, engine, gathered=True) for item in setup.parameters)
    live = min(everything, max(ZERO3_LIVE * compute, 2 * block, table * compute))
    # What is small stays gathered (transformers: up to 10 x hidden elements); the reduce bucket has hidden x hidden.
    persistent = sum(item.numel for item in setup.parameters if item.numel <= 10 * sizes.hidden) * compute
    bucket = 2 * max(sizes.hidden**2, max(item.numel for item in trained)) * compute
    return whole + live + persistent + bucket


def _saved_inputs(setup: Setup, engine: Engine, stream: int) -> int:
    """Bytes a token of the inputs of linear layers that all blocks save for gradients of weights or factors."""
    compute = setup.compute_bytes
    if not setup.full:
        inputs = [(item.name.removesuffix(".lora_A.weight"), item.shape[1]) for item in setup.adapter_inputs]
        if setup.adapter_bytes(engine) > compute:
            # peft casts the input of each target to the adapter's fp32, and autocast back: a copy for each.
            return sum(width for _, width in inputs) * compute
    else:
        matrices = [item for item in setup.parameters if item.part == "matrix"]
        inputs = [(item.name.removesuffix(".weight"), item.shape[1]) for item in matrices]
        if stream > compute:
            return sum(width for _, width in inputs) * compute
    shared = {}
    for name, width in inputs:
        block, _, leaf = name.rpartition(".")
        shared[block, _SHARED_INPUT.get(leaf, leaf)] = width
    return sum(shared.values()) * compute


def _activations(setup: Setup, engine: Engine, checkpointing: bool) -> int:
    """Bytes a token at the worst moment of forward and backward passes, the loss aside."""
    sizes, compute = setup.sizes, setup.compute_bytes
    hidden, inner = sizes.hidden, sizes.inner
    queries, keys = sizes.heads * sizes.head_size, sizes.key_heads * sizes.head_size
    # The residual stream is as wide as the embedding: fp32 where weights are, unless the engine computes in bf16.
    stream = 4 if setup.full and engine in ("single", "ddp") else compute
    # Norms compute in fp32 and save that; a trained one also what it multiplies.
    norms = 2 * hidden * (4 + stream * setup.full)
    query_norm = (queries + keys) * (4 + compute * setup.full) if sizes.query_norm else 0
    attention = 2 * (queries + keys) * compute + 4 * sizes.heads  # q, k, v, output, logsumexp
    gates = 3 * inner * compute  # gate, silu(gate), up
    blocks = sizes.layers * (norms + query_norm + attention + gates) + _saved_inputs(setup, engine, stream)
    blocks += sum(item.shape[0] for item in setup.adapter_inputs) * compute
    # Alive in one block's backward pass: gradients of the wide tensors and of the stream, and fp32 inputs of adapters.
    casts = inner * 4 if setup.adapter_inputs and setup.adapter_bytes(engine) > compute else 0
    working = 4 * inner * compute + 2 * hidden * stream + casts
    ends = hidden * (4 + stream) + 2 * sizes.head_size * 4 + 4 * 8  # last norm, rotary tables, ids and positions
    if checkpointing:
        return ends + sizes.layers * hidden * stream + blocks // sizes.layers + working
    return ends + blocks + working


def _loss(setup: Setup, engine: Engine, row_tokens: int) -> int:
    """A chunk of logits, the states they are made of and their gradients; every token may be supervised."""
    sizes, compute = setup.sizes, setup.compute_bytes
    table = sizes.vocabulary * sizes.hidden
    chunk = max(sizes.vocabulary, min(CHUNK_LOGITS, row_tokens * sizes.vocabulary))
    states_of_rows = 2 * row_tokens * sizes.hidden * (4 if setup.full and engine in ("single", "ddp") else compute)
    # The head's own gradient is summed in fp32, from products in the compute dtype.
    head = table * (4 + 4 + compute) if setup.full else 0
    return 4 * 4 * chunk + states_of_rows + head


def _step(setup: Setup, engine: Engine, ranks: int) -> int:
    """Temporaries of the optimizer step: AdamW's denominators for all tensors at once; ZeRO-3's fp32 gradients."""
    if engine == "zero3_offload":
        return 0
    trained = sum(local_numel(item.shape, engine, ranks) for item in setup.parameters if item.trainable)
    denominators = 4 * trained if setup.optimizer == "adamw_torch" else 0
    if engine == "zero3":
        part = min(trained, ZERO3_LIVE)
        return 4 * part + min(denominators, 4 * part)
    return denominators

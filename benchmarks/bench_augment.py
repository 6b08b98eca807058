"""Augmentation, and rendering of what it makes, on one core: traces a second.

    python benchmarks/bench_augment.py --toolbox /path/to/tooluniverse_v0/tools.json --json

Demo traces, with the specs of the toolbox in place of the demo's shorter ones, are augmented for one epoch after
another, so that no trace is made twice; the offline writer makes the rewrites, neighbours are the tools with the most
words in common. ``--plain`` renders the same traces without augmentation, for comparison. Both clocks are given: what
else runs on the machine lengthens the wall's, and not that of the process, which has one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
MODEL = "embedded:smollm2-135m-instruct"


def traces_with(toolbox: Any, count: int) -> list[Any]:
    """Demo traces whose tools are all in the toolbox, with the toolbox's specs."""
    from txagent_train.core.records import Step
    from txagent_train.demo.formulary import split_drugs
    from txagent_train.demo.teacher import demo_traces

    def real(specs: Any) -> Any:
        return tuple(toolbox.by_name.get(spec.name, spec) for spec in specs)

    out = []
    for trace in demo_traces(split_drugs(0)[0], n=count, seed=0):
        turns = tuple(
            replace(turn, tools_added=real(turn.tools_added)) if isinstance(turn, Step) else turn
            for turn in trace.turns
        )
        out.append(replace(trace, turns=turns, initial_tools=real(trace.initial_tools)))
    return out


def augmenter_for(toolbox: Any, versions: int, settings: dict[str, Any]) -> Any:
    from txagent_train.config.sft import AugmentSection
    from txagent_train.data.augment import Augmenter
    from txagent_train.data.candidates import Neighbours
    from txagent_train.data.rewrites import RewriteSet, ToolRewrite
    from txagent_train.toolsmith.drafts import Job
    from txagent_train.toolsmith.reserved import rewritable
    from txagent_train.toolsmith.rules import RuleWriter

    writer = RuleWriter(toolbox)
    by_tool = {}
    for spec in rewritable(toolbox):
        drafts = [writer.draft(Job(spec, number)) for number in range(1, versions + 1)]
        by_tool[spec.name] = tuple(
            ToolRewrite(spec.name, number, draft.name, draft.description, draft.arguments)
            for number, draft in enumerate(drafts, 1)
        )
    section = AugmentSection.model_validate({"toolbox": "t", "rewrites": "r", "neighbours": "n"} | settings)
    rewrites = RewriteSet(toolbox.hash, frozenset(), by_tool)
    return Augmenter(toolbox, rewrites, Neighbours(_by_words(toolbox)), section)


def _by_words(toolbox: Any) -> dict[str, tuple[str, ...]]:
    words = {spec.name: set(re.findall(r"[a-z]+", spec.name.lower())) for spec in toolbox.tools}
    return {
        name: tuple(sorted((other for other in words if other != name), key=lambda o: -len(words[o] & mine))[:10])
        for name, mine in words.items()
    }


def measure(traces: list[Any], augmenter: Any, epoch: int, *, plain: bool) -> dict[str, float]:
    """One epoch: traces a second of augmentation alone, and of it and rendering together.

    The part of augmentation is by the wall's clock; the process's has too coarse a tick for a single trace.
    """
    from txagent_train.config.sft import DataSection, ModelSection, WireSection
    from txagent_train.sft.rendering import renderer_for
    from txagent_train.sft.rows import RowMaker

    renderer = renderer_for(ModelSection(name_or_path=MODEL), WireSection(), 0)
    maker = RowMaker(DataSection.model_validate({"sources": [{"path": "x"}], "max_length": 10**6}), renderer, 0)
    counts: Counter[str] = Counter()
    samples = tokens = tools = 0
    augmenting = rendering = 0.0
    process = time.process_time()
    for trace in traces:
        start = time.perf_counter()
        if plain:
            made = trace
        else:
            augmented = augmenter.augment(trace, seed=0, epoch=epoch)
            made = augmented.trace
            counts.update(augmented.counts)
        between = time.perf_counter()
        for sample in maker.samples(made, epoch=epoch):
            samples += 1
            tokens += sample.length
            tools += len(sample.example.tools)
        augmenting += between - start
        rendering += time.perf_counter() - between
    process = time.process_time() - process
    return {
        "traces_per_s": len(traces) / (augmenting + rendering),
        "traces_per_cpu_s": len(traces) / process,
        "augmented_per_s": len(traces) / augmenting if augmenting and not plain else 0.0,
        "samples_per_s": samples / (augmenting + rendering),
        "tokens_per_sample": tokens / samples,
        "tools_per_sample": tools / samples,
        **counts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toolbox", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--traces", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--n-random", type=int, default=2)
    parser.add_argument("--n-hard", type=int, default=1)
    parser.add_argument("--virtual-share", type=float, default=0.2)
    parser.add_argument("--plain", action="store_true", help="render without augmentation")
    args = parser.parse_args()
    from txagent_train.data.toolbox import Toolbox

    toolbox = Toolbox.read(args.toolbox)
    settings = {"n_random": args.n_random, "n_hard": args.n_hard, "virtual_share": args.virtual_share}
    augmenter = augmenter_for(toolbox, args.versions, settings)
    traces = traces_with(toolbox, args.traces)
    rounds = [measure(traces, augmenter, epoch, plain=args.plain) for epoch in range(args.rounds)]
    names = (
        "traces_per_s",
        "traces_per_cpu_s",
        "augmented_per_s",
        "samples_per_s",
        "tokens_per_sample",
        "tools_per_sample",
    )
    result: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "tools": len(toolbox.tools),
        **{name: statistics.median(item[name] for item in rounds) for name in names},
        "spread": sorted(item["traces_per_s"] for item in rounds),
        "settings": settings,
        "rounds": rounds,
    }
    if args.json:
        print(json.dumps(result))
        return
    low, high = result["spread"][0], result["spread"][-1]
    print(
        f"augmented and rendered: {result['traces_per_s']:.0f} traces/s by the wall's clock ({low:.0f} to {high:.0f}), "
        f"{result['traces_per_cpu_s']:.0f} by the process's; augmented alone: {result['augmented_per_s']:.0f}; "
        f"{result['tools_per_sample']:.1f} tools and {result['tokens_per_sample']:.0f} tokens a sample"
    )


if __name__ == "__main__":
    main()

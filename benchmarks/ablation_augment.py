"""What augmentation is worth at the quickstart's scale: with against without, on tools as trained, reworded, and new.

Each run trains the quickstart's model on the quickstart's traces, once with ``data.augment.share`` as the recipe has it
and once with 0 (held-out tools are hidden in both), and lets it predict the next calls of three held-out sets
(data.unseen). One run is about 15 minutes on one core. Several processes may share a folder, with other seeds or
shares each; a run that has its result is not done again, and the table is over all results in the folder:

    python benchmarks/ablation_augment.py runs/ablation                        # everything, one after the other
    python benchmarks/ablation_augment.py runs/ablation --seeds 1 --shares 0   # one run of it
    python benchmarks/ablation_augment.py runs/ablation --seeds --json         # only the table
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from txagent_train.agent.backends import LocalBackend
from txagent_train.config.loading import load_recipe
from txagent_train.config.shipped import shipped_recipe
from txagent_train.demo.data import DemoSize, write_demo_data
from txagent_train.demo.quickstart import next_call_examples, overrides_for
from txagent_train.evaluation.next_call import evaluate_next_calls
from txagent_train.models.adapters import load_with_adapter
from txagent_train.sft.rendering import renderer_for
from txagent_train.sft.run import run_sft
from txagent_train.tracking.files import atomic_write_json
from txagent_train.tracking.logging import set_up_logging

SIZE = DemoSize(heldout_traces=160)
ITEMS = 48
"""Next calls of each set, or as many as there are."""
SETS = ("seen", "unseen_rewrites", "unseen_tools")
MAX_NEW_TOKENS = 140


def run(folder: Path, seed: int, share: float) -> None:
    """Train and evaluate one arm into ``folder``."""
    data = write_demo_data(folder / "data", SIZE, seed=seed)
    recipe = load_recipe(
        shipped_recipe("quickstart"),
        [*overrides_for(folder), f"seed={seed}", f"data.augment.share={share}", "data.eval=[]", "tracking.wandb=off"],
    )
    training = run_sft(recipe)
    renderer = renderer_for(recipe.model, recipe.wire, recipe.seed)
    model = load_with_adapter(training.model_dir, dtype=recipe.model.dtype)
    backend = LocalBackend(
        model, stop_token_ids=[renderer.stop_token_id], pad_token_id=renderer.pad_token_id, batch_size=16
    )
    result: dict[str, Any] = {"seed": seed, "share": share, "loss": training.loss}
    for name in SETS:
        examples = next_call_examples(getattr(data, name), ITEMS)
        result[name] = evaluate_next_calls(
            examples, renderer=renderer, backend=backend, max_new_tokens=MAX_NEW_TOKENS
        ).to_json()
        print(f"seed {seed}, share {share}, {name}: exact {result[name]['exact']}", flush=True)
    atomic_write_json(folder / "result.json", result)


def table(out: Path) -> list[dict[str, Any]]:
    """For each share and set: exact calls and right tools of each seed, their mean and standard deviation."""
    results = [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]
    rows = []
    for share in sorted({result["share"] for result in results}):
        arm = [result for result in results if result["share"] == share]
        for name in SETS:
            row: dict[str, Any] = {"share": share, "set": name, "seeds": [result["seed"] for result in arm]}
            row["items"] = [len(result[name]["items"]) for result in arm]
            for figure in ("exact", "names"):
                values = [result[name][figure]["value"] for result in arm]
                row[figure] = values
                row[f"{figure}_mean"] = statistics.fmean(values)
                row[f"{figure}_sd"] = statistics.stdev(values) if len(values) > 1 else None
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--shares", type=float, nargs="*", default=[0.5, 0.0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    set_up_logging()
    for seed in options.seeds:
        for share in options.shares:
            folder = options.out / f"seed{seed}-share{share:g}"
            if not (folder / "result.json").exists():
                run(folder, seed, share)
    rows = table(options.out)
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        spread = "" if row["exact_sd"] is None else f" +- {row['exact_sd']:.1%}"
        name = f"share {row['share']:g}  {row['set']:16}"
        print(f"{name} exact {row['exact_mean']:.1%}{spread}, tools {row['names_mean']:.1%}")


if __name__ == "__main__":
    main()

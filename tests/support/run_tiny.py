"""One whole tiny run as a process of its own: ``python -m tests.support.run_tiny FOLDER [KILL_AT] [SEND_TERM_AT]``.

FOLDER must hold ``model/`` (save_tiny_model). At the record of step KILL_AT the process is killed outright; at that
of SEND_TERM_AT it gets a SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.support.tiny_training import run_recipe
from txagent_train.core.records import JsonObject
from txagent_train.sft.run import run_sft


def main(folder: Path, kill_at: int = 0, term_at: int = 0) -> None:
    def watch(record: JsonObject) -> None:
        if record["kind"] == "train":
            if record["step"] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if record["step"] == term_at:
                os.kill(os.getpid(), signal.SIGTERM)

    recipe = run_recipe(folder, model=folder / "model")
    try:
        run_sft(recipe, on_record=watch)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(argument) for argument in sys.argv[2:]))

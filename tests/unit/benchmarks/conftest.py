"""The benchmarks are scripts beside the package: their folder is put on the path, as running one does."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
if str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))

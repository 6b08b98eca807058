"""The ``txagent-train`` command: one file per command, each thin. Nothing here imports torch at import time."""

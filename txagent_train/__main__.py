"""Runs ``python -m txagent_train``: the same as the ``txagent-train`` command."""

from txagent_train.cli.app import main

if __name__ == "__main__":
    main()

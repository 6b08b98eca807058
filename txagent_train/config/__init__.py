"""Recipes: one strict schema per kind. Imports pydantic and yaml, never torch.

recipe.yaml ──extends──> base.yaml        nodes.py      YAML with the file and line of every key
     └── key=value overrides              overrides.py
            └── schema                    sft.py        (fields.py: what all sections share)
                   └── problems           problems.py   every one, with its key, line and nearest right key
                          └── Recipe      loading.py
"""

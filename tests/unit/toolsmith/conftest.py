from __future__ import annotations

import pytest

from tests.support.tool_specs import tool
from txagent_train.core.records import ToolSpec
from txagent_train.data.toolbox import Toolbox


@pytest.fixture
def toolbox() -> Toolbox:
    """Near-duplicates: each thing by drug, and drugs by each thing; and two tools of the agent's loop."""
    things = {"warnings": "warning", "storage": "storage", "pregnancy": "pregnancy", "indications": "indication"}
    tools = []
    for many, one in things.items():
        tools.append(
            tool(
                f"get_{many}_by_drug_name",
                f"Retrieve {one} information based on the drug name.",
                drug_name="The name of the drug.",
            )
        )
        tools.append(
            tool(
                f"get_drug_names_by_{many}",
                f"Retrieve drug names based on {one} information.",
                **{f"{one}_info": f"The {one} text to search for."},
            )
        )
    special = [ToolSpec("Finish", "Ends it.", {}), ToolSpec("Tool_RAG", "Finds tools.", {})]
    return Toolbox((*tools, *special))

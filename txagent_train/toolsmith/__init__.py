"""Making training data about tools: rewritten versions, their checks, and which tools are alike."""

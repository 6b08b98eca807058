"""Tasks that put a model to the test and keep every item of the result."""

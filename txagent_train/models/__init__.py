"""Loading models, tokenizers and adapters; the embedded SmolLM2."""

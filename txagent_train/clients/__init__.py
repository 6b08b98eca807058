"""Chat-completion clients: any OpenAI-compatible endpoint, recorded and replayed."""

"""Wire formats: records <-> text and token ids, with the loss mask by construction."""

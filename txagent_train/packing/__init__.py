"""Prefix tries: what the samples of a trace have in common is computed once."""

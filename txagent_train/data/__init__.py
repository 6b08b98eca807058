"""Traces from files: importing, checking, counting, splitting, and decomposition into samples."""

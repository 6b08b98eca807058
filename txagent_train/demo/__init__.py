"""The embedded default: a small drug formulary as tools, a scripted teacher, the quickstart."""

"""Training framework for tool-using biomedical agents."""

__version__ = "0.1.0"

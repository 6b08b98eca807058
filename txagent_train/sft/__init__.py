"""Supervised fine-tuning: preparation, step planning, loss, trainer, run."""

"""What a run leaves behind: its directory, metrics, Weights & Biases run, log lines and HTML report."""

"""Where checkpoints are kept."""

"""The questions that the observer asks, and what is known between the answers."""

"""Experiments: what one does with the engine rather than what it is."""

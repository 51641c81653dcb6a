"""A cluster that exists only as a model: for fast tests and for the simulator."""

"""A PBS that exists only as a model, and programs that print what PBS would say of it."""

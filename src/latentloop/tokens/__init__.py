"""How a problem is written for a model."""

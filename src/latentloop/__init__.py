"""latentloop."""

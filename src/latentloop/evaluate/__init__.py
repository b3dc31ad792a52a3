"""From weights to numbers."""

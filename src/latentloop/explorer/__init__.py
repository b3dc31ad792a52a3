"""A page on which a person watches the model think."""

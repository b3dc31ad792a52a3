"""The page: one HTML file, without server or network, in which a person watches a model think."""

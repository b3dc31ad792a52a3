"""Experiments as data: what is compared, what is measured of it, and what decides a claim."""

"""Figures and tables of results; computes nothing."""

"""Figures and tables: draws what others computed."""

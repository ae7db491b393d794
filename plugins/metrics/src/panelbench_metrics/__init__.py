"""Metrics that ship with Panelbench."""

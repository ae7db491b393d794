"""Synthetic user tables from language models that are tuned with DP-SGD."""

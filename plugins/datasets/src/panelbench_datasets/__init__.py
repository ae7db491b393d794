"""Datasets for Panelbench: real loaders and simulators, one module each."""

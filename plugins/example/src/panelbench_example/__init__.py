"""A complete, small Panelbench plugin to copy."""

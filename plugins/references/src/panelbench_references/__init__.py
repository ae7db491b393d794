"""References that ship with Panelbench."""

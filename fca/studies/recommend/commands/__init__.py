"""Commands of recommendations."""

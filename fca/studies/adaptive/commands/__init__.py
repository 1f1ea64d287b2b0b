"""Commands of adaptive tests."""

"""Commands of generated images."""

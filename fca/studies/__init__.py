"""Analyses: rows and arrays of the store in, tables out. No torch, no GPU, no images."""

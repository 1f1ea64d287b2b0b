"""Test images that are drawn: plans of classes, attributes and levels, generators, masks and checks."""

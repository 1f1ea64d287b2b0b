"""Statistics of images in levels of difficulty: pools by level, the hierarchical score."""

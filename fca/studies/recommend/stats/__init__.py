"""Statistics of a recommendation: what candidates will reach, and what more images would bring."""

"""Studies, one folder each, found by listing this one. They stand on the core, which knows none of them."""

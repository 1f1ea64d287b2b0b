"""The combinations of attribute values that images are drawn of."""

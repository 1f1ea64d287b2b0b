"""Statistics of reliance on the object, and of maps of saliency."""

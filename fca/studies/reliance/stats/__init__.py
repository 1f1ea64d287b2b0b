"""Statistics of reliance on the object, and of saliency maps."""

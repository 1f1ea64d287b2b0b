"""Tasks of a recommendation: a screen of many images, a learning curve."""

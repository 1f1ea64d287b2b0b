"""The study of reliance on the object or its surroundings: its tables and figures."""

"""What analyses read, and the tables they make: selected rows, predictions, responses; declared columns and tables."""

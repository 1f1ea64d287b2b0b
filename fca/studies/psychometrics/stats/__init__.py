"""Whether the model of item response theory holds: fit, local dependence, DIF, dimensions, severity as a facet."""

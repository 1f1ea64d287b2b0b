"""Which model to use for one job: candidates, what is known of each before and after training, and the choice."""

"""What draws: the renderer, diffusion models, a service."""

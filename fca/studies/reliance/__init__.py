"""For the right reasons: does a model rely on the object or on spurious cues around it?"""

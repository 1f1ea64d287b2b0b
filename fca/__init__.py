"""fca: which image classifier, when the job has few classes?"""

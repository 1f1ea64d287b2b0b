"""The study of psychometrics: does the model of item response theory hold, and how well do the images measure?"""

"""Statistics of few classes: difficulty of class subsets, prediction of accuracies that were not measured."""

"""How good retrieval and answers are: data sets, measures, judges, comparisons."""

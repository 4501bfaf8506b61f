"""What a run was like: recorder, histograms, result schema and comparison of results."""

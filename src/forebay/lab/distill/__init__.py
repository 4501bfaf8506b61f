"""Small rankers learned from a dearer one's scores, or from labels."""

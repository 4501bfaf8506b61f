"""How results are shown: a self-contained page with charts, a live view on a terminal."""

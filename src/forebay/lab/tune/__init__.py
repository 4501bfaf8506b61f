"""Search for settings: what to try, what is good, the front, its knee, and the patch."""

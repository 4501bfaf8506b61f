"""One module per file format; each has ``parse(source, limits) -> Extracted``."""

"""The two lives of the service: ``answer`` and ``ingest``, plain async Python, top to bottom."""

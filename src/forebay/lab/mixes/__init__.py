"""Random mixes of requests, judged against a clairvoyant schedule and a plain router."""

"""Random mixes of requests, judged against a clairvoyant schedule and against sending straight on."""

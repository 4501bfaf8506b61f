"""What is asked, and when: arrivals, traces, request content, workload files."""

"""What defines the ports: conformance suites to subclass. Needs the extra `testing` (pytest, Hypothesis)."""

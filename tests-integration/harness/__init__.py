"""Real servers, faults and processes for the tests of every distribution; never published."""

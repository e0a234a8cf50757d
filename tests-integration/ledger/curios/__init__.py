"""Models of unusual shapes, for the tests of what a fenced update accepts and refuses."""

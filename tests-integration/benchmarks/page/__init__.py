"""The page of the benchmarks in the documentation, made of what is recorded.

Modules:
    charts      which charts there are, and the drawing of them
    words       the page around them
"""

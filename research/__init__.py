"""What is rerun: the paper's experiments, rivals, benchmarks, and shipping weights.

A clone has it, the wheel does not.
"""

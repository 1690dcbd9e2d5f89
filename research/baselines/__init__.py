"""The models the paper compares with, and those one would otherwise pick, in the same harness."""

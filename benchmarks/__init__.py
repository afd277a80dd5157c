"""Benchmarks: programs that measure kassay against others and keep every raw value under build/."""

"""Nsight Systems: nsys stats, exported SQLite."""

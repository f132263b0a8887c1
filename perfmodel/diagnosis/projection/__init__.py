"""What a profile would take on another machine: each part by itself, then the time line put together again."""

"""What a device says about itself while it works, and which samples that disqualifies."""

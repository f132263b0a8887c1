"""How far predictions are from measurements, and the fit of the constants."""

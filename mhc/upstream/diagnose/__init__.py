"""What else is known of a repro: compiler settings that heal it, cases beside it, the code generated for it."""

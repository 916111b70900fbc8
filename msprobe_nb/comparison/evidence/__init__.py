"""``rules="evidence"``: which calls made a difference, and which only passed it on."""

"""What keeps a sweep from hurting the database it works on: signals, their limits, and the governor that heeds them."""

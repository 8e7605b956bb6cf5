"""What a sweep's table holds at one instant, and what that proves of the sweep."""

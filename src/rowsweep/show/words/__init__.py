"""What every view says, in words: numbers and times, foreign text made safe, and what a snapshot says."""

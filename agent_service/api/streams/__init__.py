"""What is pushed to callers: the events of one run or of all, and the wait until a run rests."""

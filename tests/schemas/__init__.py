"""What the contract promises: its models, its names, and the documents generated from them."""

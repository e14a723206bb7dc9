"""The gateway: carries out tool calls, and brings back results and webhooks."""

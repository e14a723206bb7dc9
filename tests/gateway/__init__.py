"""The gateway: tools carried out, results and webhooks brought back."""

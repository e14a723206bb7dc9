"""Real model adapters and SDKs against servers that behave as the providers' do."""

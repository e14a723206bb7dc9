"""Real models, by their SDKs, against servers that behave as the providers' do."""

"""The calls of the HTTP API, by what they are about: each class answers some of the routes that `app` lists."""

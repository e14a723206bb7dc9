"""HTTP servers, and limits on requests before any route is reached."""

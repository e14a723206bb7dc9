"""What every response says to browsers: keep nothing, guess no type, run nothing, be framed by nobody."""

HARDENED = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""By lower case name. Styles are for the page at /docs, which has no script."""

"""The mark and the colour of each state of a run, a step, or an item of its timeline."""

MARKS = {
    "queued": ("…", "dim"),
    "running": ("▶", "cyan"),
    "paused": ("‖", "yellow"),
    "done": ("✓", "green"),
    "escalated": ("!", "yellow"),
    "failed": ("✗", "red"),
    "cancelled": ("∅", "magenta"),
    "ok": ("✓", "green"),
    "error": ("✗", "red"),
    "refused": ("!", "yellow"),
    "open": ("▶", "cyan"),
    "pending": ("▶", "cyan"),
    "waiting": ("…", "yellow"),
    "over": ("·", "dim"),
    "unfinished": ("∅", "magenta"),
    "continuation": ("↻", "cyan"),
    "budget": ("!", "yellow"),
}
UNKNOWN = ("?", "")

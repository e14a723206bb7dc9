"""What a step gathers: tasks that depend on each other, and runs that are started as steps."""

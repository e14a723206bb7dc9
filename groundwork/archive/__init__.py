"""Archives: signed zip files for backups, exports and moves between stores."""

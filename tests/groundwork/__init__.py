"""What the technical ground promises, shown on real files, threads and processes."""

"""What the executor's actions do, one module for each kind."""

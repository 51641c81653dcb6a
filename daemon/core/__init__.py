"""The pure core: values and decisions.  No input or output, no clock, no logging, no randomness."""

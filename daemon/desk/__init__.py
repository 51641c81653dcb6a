"""The daemon as its callers see it: what the API's handlers and the hooks call."""

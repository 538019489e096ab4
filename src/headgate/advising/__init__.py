"""Pure: which intermediate result of a flow is worth keeping, from what its operators cost."""

"""Pure: the operator graph of a flow and the incremental rule of each operator."""

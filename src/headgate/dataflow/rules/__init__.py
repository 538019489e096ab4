"""One incremental rule per operator; `headgate.dataflow.rulebook` lists them."""

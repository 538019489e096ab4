"""The command line. A command talks to the service that runs for its project, or is one for its own time.

main -> one module per command            modules import what is heavy only when they run
reaching -> running                       finds the service, or opens the warehouse
formats -> table, texts                   rows and values as people and programs read them
"""

"""Backups and restoring, with the files of a warehouse pinned at one ledger version."""

"""Producers: programs that write rows themselves, at bulk speed, through a PEP 249 connection."""

from headgate.producing.connection import Connection
from headgate.producing.cursor import Cursor
from headgate.producing.policies import AtOnce, Every, LoadAware, OnDemand, Policy

__all__ = ["AtOnce", "Connection", "Cursor", "Every", "LoadAware", "OnDemand", "Policy"]

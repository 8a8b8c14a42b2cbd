"""Tests: unit needs nothing, contract runs one suite on fakes and real adapters, integration starts real programs on loopback."""
